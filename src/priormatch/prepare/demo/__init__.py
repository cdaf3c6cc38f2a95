"""A small generated corpus: booking appointments, synthesized by espeak-ng in many voices."""

from priormatch.prepare.demo.corpus import VERSION, DemoSizes, prepare_demo

__all__ = ["VERSION", "DemoSizes", "prepare_demo"]
