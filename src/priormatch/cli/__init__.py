"""The command line: `app` lists the verbs, and the other modules define them, grouped by purpose."""

from priormatch.cli.app import main as main
