"""openvc-core, an independent verifier of W3C credentials, on what we issue."""

import re

import pytest
from certificates import NOW, signed, single_changes

pytestmark = pytest.mark.libraries


def test_another_library_verifies_what_we_issue_and_refuses_what_was_changed() -> None:
    from openvc.did.base import DidResolverRegistry
    from openvc.did.did_key import DidKeyResolver
    from openvc.errors import OpenvcError
    from openvc.verify import VerificationPolicy, verify_credential

    def is_taken(document: dict) -> bool:
        try:
            verify_credential(document, policy=VerificationPolicy(now=NOW), resolver=DidResolverRegistry([DidKeyResolver()]))
        except OpenvcError:
            return False
        return True

    assert is_taken(signed())
    taken = {what for what, changed in single_changes(signed()) if is_taken(changed)}
    # The proof's copy of the contexts it does not read; that must be the document's, so nothing can be said by changing it.
    assert {what for what in taken if not re.match(r"proof(\.@context|: without @context)", what)} == set()
