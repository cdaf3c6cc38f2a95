"""`python -m priormatch`, for launchers such as torchrun."""

from priormatch.cli import main

main()
