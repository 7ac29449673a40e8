"""Objects in an S3 store, by `obstore`: the only file that imports it.

Where the store is and who may use it stands in the environment, not in ~/.aws, by the names that all tools have:
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL, AWS_ALLOW_HTTP, AWS_SKIP_SIGNATURE.
None of it gets into a message: what a store answers may repeat it, so an error says what happened in words of its own.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore, S3Store

from ckptlab.errors import StoreError, UsageError
from ckptlab.storage.object_path import Head

PATIENCE = "CKPTLAB_STORE_SECONDS"  # one request, and the retries of one, each end after so many seconds
PATIENCE_SECONDS = 60
CONNECT_SECONDS = 5
MAX_RETRIES = 4  # after answers 5xx and lost connections, each wait twice as long
PART_BYTES = 8 << 20  # S3 takes at least 5 MiB
MAX_PARTS = 9000  # S3 takes 10,000
PARTS_AT_ONCE = 2
CRC32 = "ckptlab-crc32"  # x-amz-meta-ckptlab-crc32, of the whole object

HINTS = {  # what is in an answer, what to say of it
    "NoSuchBucket": "there is no such bucket; make it, or correct the address",
    "169.254.169.254": "no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true",
    "401 Unauthorized": "the credentials were refused; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of one who may do this",
    "403 Forbidden": "the credentials were refused; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of one who may do this",
    "builder error": "no request can be made; AWS_ENDPOINT_URL must be an address, and for http:// set AWS_ALLOW_HTTP=true",
    "without LOCATION": "the bucket is in another region; set AWS_REGION",
}


def connect(bucket: str) -> "Bucket":
    """Give a bucket with its own connections; nothing is sent yet."""
    patience = _patience()
    try:
        store = S3Store(
            bucket,
            client_options={  # these replace what the environment says of the client
                "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true", "on", "yes", "y"),
                "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
                "timeout": patience,
            },
            retry_config={"max_retries": MAX_RETRIES, "retry_timeout": patience},
        )
    except BaseError:
        raise UsageError(f"s3://{bucket}: a variable AWS_... of the environment has a value that it cannot have") from None
    return Bucket(f"s3://{bucket}", store)


def _patience() -> timedelta:
    text = os.environ.get(PATIENCE, str(PATIENCE_SECONDS))
    if not re.fullmatch("[1-9][0-9]{0,5}", text):
        raise UsageError(f"{PATIENCE}={text!r}: expected a whole number of seconds, at least 1")
    return timedelta(seconds=int(text))


class Bucket:
    """The contract `Store` of one bucket."""

    def __init__(self, address: str, store: ObjectStore) -> None:
        self._address, self._store = address, store

    def list_names(self, key: str) -> list[str]:
        """List the names under a key."""
        with self._saying(key):
            found = obstore.list_with_delimiter(self._store, key)
        keys = [*found["common_prefixes"], *(entry["path"] for entry in found["objects"])]
        return sorted(path.rpartition("/")[2] for path in keys)

    def sizes(self, key: str) -> dict[str, int]:
        """Tell the bytes of all objects under a key."""
        with self._saying(key):
            found = obstore.list(self._store, key).collect()
        return {entry["path"].removeprefix(f"{key}/"): entry["size"] for entry in found}

    def head(self, key: str) -> Head | None:
        """Tell about one object."""
        try:
            with self._saying(key):
                found = obstore.get(self._store, key, options={"head": True})
        except FileNotFoundError:
            return None
        crc32 = str(found.attributes.get(CRC32, ""))
        return Head(found.meta["size"], int(crc32, 16) if re.fullmatch("[0-9a-f]{8}", crc32) else None)

    def read(self, key: str, begin: int, end: int) -> memoryview:
        """Read a range."""
        with self._saying(key):
            return memoryview(obstore.get_range(self._store, key, start=begin, end=end))

    def put(self, key: str, blocks: Iterator[bytes], head: Head) -> None:
        """Put an object; `blocks` must give `head.num_bytes` bytes."""
        is_large = head.num_bytes > PART_BYTES
        with self._saying(key):
            obstore.put(
                self._store,
                key,
                blocks if is_large else b"".join(blocks),
                attributes={CRC32: f"{head.crc32:08x}"},
                use_multipart=is_large,
                chunk_size=max(PART_BYTES, -(-head.num_bytes // MAX_PARTS)),
                max_concurrency=PARTS_AT_ONCE,
            )

    def create(self, key: str, data: bytes) -> bool:
        """Put an object if there is none."""
        try:
            with self._saying(key):
                obstore.put(self._store, key, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, a thousand in one request."""
        if keys:
            with suppress(FileNotFoundError), self._saying(keys[0]):
                obstore.delete(self._store, keys)

    @contextmanager
    def _saying(self, key: str) -> Iterator[None]:
        """Turn what `obstore` raises into `StoreError`; a missing object stays a `FileNotFoundError`, with its address."""
        where = f"{self._address}/{key}"
        try:
            yield
        except AlreadyExistsError:
            raise
        except (FileNotFoundError, BaseError) as error:
            text = str(error)
            if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in text:
                raise FileNotFoundError(f"{where} is not in the store") from None
            hint = next((hint for sign, hint in HINTS.items() if sign in text), None)
            raise StoreError(f"{where}: {hint or _unknown(text)}") from None  # the store's answer may hold a token


def _unknown(text: str) -> str:
    """Say what is known of an error, in words of its own: the status, and after how many tries."""
    known = re.findall(r"\b[1-5][0-9]{2} [A-Z][A-Za-z ]+|after [0-9]+ retries|timed out", text)
    told = f": {', '.join(dict.fromkeys(known))}" if known else ""
    return f"the store did not do what it was asked{told}; try again, and see that AWS_ENDPOINT_URL can be reached"
