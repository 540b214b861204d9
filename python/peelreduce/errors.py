"""What went wrong, as classes that programs can tell apart. docs/recovery.md says what to do after each.

    Error                 everything that the library raises; `code` names what went wrong
      TimedOut            a worker did not answer or did not come in time; the sentence names it
      Disagreement        workers called with different arrays or options, or are at different places of the program
      NotFinite           NaN or infinity where fixed-point numbers cannot hold it
      TransportFailed     a worker is gone or failed, or what connects the workers did
      Misuse              a call that cannot be right, here or on another worker; also a ValueError

`backward()` raises them too, as far as torch hands them on: always as a RuntimeError with the same sentence.
"""

from ._core import Disagreement, Error, Misuse, NotFinite, TimedOut, TransportFailed

__all__ = ["Disagreement", "Error", "Misuse", "NotFinite", "TimedOut", "TransportFailed"]
