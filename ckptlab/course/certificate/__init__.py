"""Certificates that a stranger can check: made from what was recomputed, verified by a command or a page.

In the order in which they act: `claim` (from `passed`, or `results`, what `ckptlab grade` wrote), `credential` (with `shape`),
`keys`, `proof`, `short_id`, `carry`, `picture`, `page`; `making` has the effects, `notebook` shows. `verification` judges.
"""


def certificate(name: str = "") -> None:
    """Make your own certificate into `certificates/` beside the notebook and show it, or say what is missing to pass.

    All answers are graded again and all exercises run again, about a second each. The certificate is self-issued: signed with
    a key of your own. Each call makes another one.

    Args:
        name: what stands on it, as you type it; nobody checks it. Without it no name is given.
    """
    from ckptlab.course.certificate.notebook import show_own  # cryptography, only where a certificate is wanted

    show_own(name)


__all__ = ["certificate"]
