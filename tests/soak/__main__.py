"""`python -m tests.soak [SECONDS] [SEED]`: the torment of brokers by command."""

from .command import main
from .run import run

main(run)
