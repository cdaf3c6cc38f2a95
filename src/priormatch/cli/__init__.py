"""The command line: `app` names the verbs, and the modules beside it hold them, by what they are for."""

from priormatch.cli.app import main as main
