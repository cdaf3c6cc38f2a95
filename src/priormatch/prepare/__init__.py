"""Turn corpora in many formats, the demo and synthetic speech into cuts."""
