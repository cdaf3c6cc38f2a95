"""Checks of the machine, the installation, the data, the settings and the models before a run."""
