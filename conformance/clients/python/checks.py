"""What the checks are made of: each passes with a line, or ends the run with a `Difference`."""

import json
import time

from kubernetes import client
from kubernetes.client.exceptions import ApiException

NAMESPACE = "python-conformance"
GROUP = "python.conformance.example.com"
# Seconds. A watch that delivers nothing, or a definition that is not served, is a failure by then.
PATIENCE = 20


class Difference(Exception):
    """What the server did and should not have done."""


def passed(name):
    print(f"ok      {name}", flush=True)


def equal(name, got, wanted):
    if got != wanted:
        raise Difference(f"{name}: got {got!r}, wanted {wanted!r}")
    passed(name)


def holds(name, condition, seen):
    if not condition:
        raise Difference(f"{name}: not so: {seen!r}")
    passed(name)


def refused(name, code, reason, call):
    """The call has to fail with this code, and with a `Status` of this reason as its body."""
    try:
        answer = call()
    except ApiException as error:
        body = json.loads(error.body)
        equal(name, (error.status, body["kind"], body["code"], body["reason"]), (code, "Status", code, reason))
        return body
    raise Difference(f"{name}: not refused: {answer!r}")


def eventually(name, attempt):
    """Tries until the attempt returns something true; an error of the server's counts as not yet."""
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
    raise Difference(f"{name}: not within {PATIENCE} s: {last!r}")


def config_map(name, **data):
    metadata = client.V1ObjectMeta(name=name, labels={"app": name})
    return client.V1ConfigMap(metadata=metadata, data=data)
