"""`python -m nbagent`."""

from nbagent.cli import main

if __name__ == "__main__":
    main()
