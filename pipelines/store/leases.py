"""Leases for stores without file locks: a name goes in, one holder in the Ray cluster gets it for a while.

A named, detached Ray actor grants them. The holder renews its lease; one that stops renewing loses it.
"""

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bownet.masking import without_password
from pipelines.store.errors import StoreError

LEASE_SECONDS = 30.0
RENEW_SECONDS = 5.0
ANSWER_SECONDS = 120.0  # ample for an actor that moves to another node
NAMESPACE, ACTOR = "bownet", "store-leases"

log = logging.getLogger(__name__)


def me() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


@dataclass
class Lease:
    """A lease that a daemon thread renews until it is released, refused, or its process dies."""

    name: str
    seconds: float
    renew_seconds: float
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    _stop: threading.Event = field(default_factory=threading.Event)
    _speaking: threading.Lock = field(default_factory=threading.Lock)  # else a late renewal undoes a release

    def keep_renewing(self) -> None:
        threading.Thread(target=self._renew_until_stopped, name=f"lease {self.name}", daemon=True).start()

    def confirm(self) -> None:
        if not self._renew():
            raise StoreError(f"{self.name}: the lease ran out and another process builds it now; run again")

    def release(self) -> None:
        self._stop.set()
        try:
            with self._speaking:
                _ask("release", self.name, self.token)
        except Exception as error:  # the work is done; the lease runs out by itself
            _warn(f"{self.name}: lease not given back, it ends in {self.seconds:.0f} s: {error}")

    def _renew(self) -> bool:
        with self._speaking:
            return self._stop.is_set() or bool(_ask("renew", self.name, self.token, me(), self.seconds))

    def _renew_until_stopped(self) -> None:
        while not self._stop.wait(self.renew_seconds):
            try:
                if not self._renew():
                    _warn(f"{self.name}: lease lost to another process")
                    return
            except Exception as error:  # the actor may be moving to another node: try until told to stop
                _warn(f"{self.name}: lease not renewed yet: {error}")


def _warn(text: str) -> None:
    """A lease's name begins with the store's address, and that may hold a password."""
    log.warning("%s", without_password(text))


def try_lease(name: str, seconds: float = LEASE_SECONDS, renew_seconds: float = RENEW_SECONDS) -> Lease | str:
    """The lease, renewed from now on, or the name of its holder."""
    lease = Lease(name, seconds, renew_seconds)
    holder = _ask("acquire", name, lease.token, me(), seconds)
    if holder is not None:
        return str(holder)
    lease.keep_renewing()
    return lease


def lease_holder(name: str) -> str | None:
    holder = _ask("holder", name)
    return None if holder is None else str(holder)


class LeaseTable:
    """Who holds which name until when, by one clock. `quiet_seconds`: grant nothing new for so long."""

    def __init__(self, quiet_seconds: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.quiet_until = clock() + quiet_seconds
        self.leases: dict[str, tuple[str, str, float]] = {}  # name: token, holder, end

    def acquire(self, name: str, token: str, holder: str, seconds: float) -> str | None:
        """None when granted, else the holder."""
        if self.clock() < self.quiet_until:
            return "a holder that the restarted lease actor has yet to hear from"
        if (current := self.holder(name)) is not None and self.leases[name][0] != token:
            return current
        self.leases[name] = (token, holder, self.clock() + seconds)
        return None

    def renew(self, name: str, token: str, holder: str, seconds: float) -> bool:
        """Also for a lease that ran out or was forgotten, as long as no one else has taken it."""
        if self.holder(name) is not None and self.leases[name][0] != token:
            return False
        self.leases[name] = (token, holder, self.clock() + seconds)
        return True

    def release(self, name: str, token: str) -> None:
        if name in self.leases and self.leases[name][0] == token:
            del self.leases[name]

    def holder(self, name: str) -> str | None:
        _, holder, end = self.leases.get(name, ("", "", float("-inf")))
        return holder if end > self.clock() else None


class LeaseActor(LeaseTable):
    """The table as a Ray actor. Restarted, it has forgotten its leases: their holders speak first."""

    def __init__(self) -> None:
        import ray

        restarted = ray.get_runtime_context().was_current_actor_reconstructed
        super().__init__(quiet_seconds=LEASE_SECONDS if restarted else 0.0)


def _ask(method: str, *arguments: Any) -> Any:
    import ray

    if not ray.is_initialized():  # asked first: ray.get_actor would start a cluster of its own
        raise StoreError(
            "store: a store that is not a local folder needs Ray to decide who builds; "
            "call ray.init() first, or use a local path"
        )
    actor: Any
    try:
        actor = ray.get_actor(ACTOR, namespace=NAMESPACE)
    except ValueError:
        options = {"name": ACTOR, "namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True}
        lasting = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
        actor = ray.remote(LeaseActor).options(**options, **lasting).remote()
    try:
        return ray.get(getattr(actor, method).remote(*arguments), timeout=ANSWER_SECONDS)
    except ray.exceptions.GetTimeoutError as error:
        raise StoreError(
            f"store: the actor that grants leases has not answered for {ANSWER_SECONDS:.0f} s; look whether the "
            "cluster lives (ray status), and run again"
        ) from error
