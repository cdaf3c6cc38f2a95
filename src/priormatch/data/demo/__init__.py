"""A small corpus made on the spot: booking appointments, spoken by espeak-ng in many voices."""

from priormatch.data.demo.corpus import DemoSizes, prepare_demo

__all__ = ["DemoSizes", "prepare_demo"]
