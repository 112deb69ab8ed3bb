"""The checks: each prints a line if it passes, or ends the run with a `Difference`."""

import json
import time

from kubernetes import client
from kubernetes.client.exceptions import ApiException

NAMESPACE = "python-conformance"
GROUP = "python.conformance.example.com"
# Timeout in seconds for an event of a watch, and until a definition is served.
PATIENCE = 20


class Difference(Exception):
    """Difference from the expected behaviour of the server."""


def passed(name):
    print(f"ok      {name}", flush=True)


def equal(name, got, wanted):
    if got != wanted:
        raise Difference(f"{name}: got {got!r}, wanted {wanted!r}")
    passed(name)


def holds(name, condition, seen):
    if not condition:
        raise Difference(f"{name}: failed with {seen!r}")
    passed(name)


def refused(name, code, reason, call):
    """Checks that the call fails with this code, and with a `Status` of this reason as its body."""
    try:
        answer = call()
    except ApiException as error:
        body = json.loads(error.body)
        equal(name, (error.status, body["kind"], body["code"], body["reason"]), (code, "Status", code, reason))
        return body
    raise Difference(f"{name}: not rejected: {answer!r}")


def eventually(name, attempt):
    """Repeats the attempt until it returns a true value. Errors of the server are retried."""
    end = time.monotonic() + PATIENCE
    last = None
    while time.monotonic() < end:
        try:
            last = attempt()
            if last:
                passed(name)
                return last
        except ApiException as error:
            last = error
        time.sleep(0.1)
    raise Difference(f"{name}: not met within {PATIENCE} s: {last!r}")


def config_map(name, **data):
    metadata = client.V1ObjectMeta(name=name, labels={"app": name})
    return client.V1ConfigMap(metadata=metadata, data=data)
