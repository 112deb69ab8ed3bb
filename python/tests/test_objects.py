"""Objects as mappings."""

import copy
import json
import pickle
import traceback
from collections.abc import Iterator, Mapping, Sequence

import pytest

import steadfast_kube as steadfast
from conftest import PATIENCE, pod
from steadfast_kube import blocking
from steadfast_kube.testing import Server


@pytest.fixture
def web(server: Server) -> Iterator[steadfast.Object]:
    server.create(pod("web-0", app="web", **{"app.kubernetes.io/name": "shop"}))
    with blocking.Informers(url=server.url) as informers:
        pods = informers.watch("pods")
        pods.synced(timeout=PATIENCE)
        yield pods["shop/web-0"]


def test_identity_needs_no_decoding(web: steadfast.Object) -> None:
    assert (web.key, web.name, web.namespace) == ("shop/web-0", "web-0", "shop")
    assert web.uid == web["metadata"]["uid"]
    assert web.resource_version == web["metadata"]["resourceVersion"]


def test_items_and_attributes_are_equal(web: steadfast.Object) -> None:
    assert web["spec"]["nodeName"] == web.spec.nodeName == "n1"
    assert web.spec.containers[0].ports[0].containerPort == 80
    assert web.metadata.labels["app.kubernetes.io/name"] == "shop"
    assert web.apiVersion == "v1" and web["kind"] == "Pod"
    assert "spec" in web and "nope" not in web and 7 not in web
    assert web.get("nope") is None and web.get("nope", 7) == 7
    assert web.spec.get("nodeName") == "n1"
    assert list(web)[:2] == ["apiVersion", "kind"]
    assert len(web) == len(web.keys()) == len(web.items())


def test_missing_member_raises_usual_errors(web: steadfast.Object) -> None:
    with pytest.raises(KeyError, match="nope"):
        web["nope"]
    with pytest.raises(KeyError, match="nope"):
        web.spec["nope"]
    with pytest.raises(AttributeError, match="nope"):
        web.nope
    with pytest.raises(AttributeError, match="nope"):
        web.spec.nope
    with pytest.raises(IndexError):
        web.spec.containers[1]


@pytest.mark.parametrize(
    "wrong, right",
    [("nodename", "nodeName"), ("node_name", "nodeName"), ("NodeName", "nodeName"), ("Containers", "containers")],
)
def test_similar_member_is_suggested(web: steadfast.Object, wrong: str, right: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute or member '{wrong}'; did you mean '{right}'\\?") as raised:
        getattr(web.spec, wrong)
    # The interpreter adds a suggestion of its own to other errors.
    assert "".join(traceback.format_exception(raised.value)).lower().count("did you mean") == 1
    with pytest.raises(KeyError, match=f"{wrong}; did you mean '{right}'\\?"):
        web.spec[wrong]


def test_similar_member_of_object_is_suggested(web: steadfast.Object) -> None:
    with pytest.raises(AttributeError, match="did you mean 'apiVersion'"):
        web.api_version
    with pytest.raises(KeyError, match="did you mean 'apiVersion'"):
        web["api_version"]
    for missing in ("nope", "node", "_spec"):
        with pytest.raises(AttributeError) as error:
            getattr(web, missing)
        assert "did you mean" not in str(error.value)
    with pytest.raises(KeyError) as key_error:
        web["nope"]
    assert key_error.value.args == ("nope",)


def test_read_decodes_single_fields(web: steadfast.Object) -> None:
    assert web.read("spec.nodeName") == "n1"
    assert web.read("spec.containers[*].image") == ["web:1"]
    assert web.read('metadata.labels["app.kubernetes.io/name"]') == "shop"
    assert web.read("spec.nope") is None
    assert web.read("spec.nope", 7) == 7
    decoded = web.spec.nodeName
    assert web.read("spec.nodeName") == decoded
    assert web.read("spec.containers[*].image") == ["web:1"]
    with pytest.raises(ValueError):
        web.read("spec..x")


def test_to_dict_is_a_plain_copy(web: steadfast.Object) -> None:
    plain = web.to_dict()
    assert type(plain) is dict and type(plain["spec"]["containers"]) is list
    assert json.loads(json.dumps(plain)) == plain
    plain["spec"]["nodeName"] = "other"
    assert web.spec.nodeName == "n1"
    assert web.spec.containers.to_list() == web.to_dict()["spec"]["containers"]


def test_equality_compares_content(web: steadfast.Object) -> None:
    assert web == web.to_dict()
    assert web.spec == web.to_dict()["spec"]
    assert web.spec.containers == web.to_dict()["spec"]["containers"]
    other = web.to_dict()
    other["spec"]["nodeName"] = "n2"
    assert web != other
    assert web != steadfast.Object.from_json(json.dumps(other).encode())
    assert web != "shop/web-0"


def test_copies_and_pickles_are_equal(web: steadfast.Object) -> None:
    assert copy.copy(web) is web and copy.deepcopy(web) is web
    for part in (web, web.spec, web.spec.containers):
        again = pickle.loads(pickle.dumps(part))
        assert again == part and type(again) is type(part)
    again = pickle.loads(pickle.dumps(web))
    assert hash(again) == hash(web)
    assert (again.key, again.uid, again.resource_version) == (web.key, web.uid, web.resource_version)
    assert again.read("spec.nodeName") == "n1"


def test_json_is_text_or_bytes() -> None:
    for part, text in (
        (steadfast.Object, '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ä"}}'),
        (steadfast.Fields, '{"a": "ä"}'),
        (steadfast.Items, '["ä"]'),
    ):
        assert part.from_json(text) == part.from_json(text.encode()) == json.loads(text)
        with pytest.raises(TypeError, match="the JSON must be str or bytes, not dict"):
            part.from_json({})


def test_objects_are_abstract_collections(web: steadfast.Object) -> None:
    assert isinstance(web, Mapping) and isinstance(web.spec, Mapping)
    assert isinstance(web.spec.containers, Sequence)
    match web:
        case {"kind": "Pod", "spec": {"nodeName": node, "containers": [{"image": image}]}}:
            assert (node, image) == ("n1", "web:1")
        case _:
            pytest.fail("a mapping pattern does not match")
    assert {**web}["kind"] == "Pod"
    assert [container.name for container in web.spec.containers] == ["main"]
    assert web.spec.containers[-1] == web.spec.containers[0:1][0]


def test_objects_are_immutable(web: steadfast.Object) -> None:
    with pytest.raises((AttributeError, TypeError)):
        web.spec = {}  # type: ignore[misc]
    with pytest.raises(TypeError):
        web["spec"] = {}  # type: ignore[index]


def test_repr_contains_no_content(server: Server) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "shop"}, "data": {"p": "aHVudGVyMg=="}}
    server.create(secret)
    with blocking.Informers(url=server.url) as informers:
        secrets = informers.watch("secrets")
        secrets.synced(timeout=PATIENCE)
        found = secrets["shop/s"]
        text = repr(found) + repr(found.data) + repr(secrets) + str(found)
        assert "aHVudGVyMg==" not in text
        assert "v1 Secret shop/s" in text


def test_listed_and_watched_states_are_equal(server: Server) -> None:
    with blocking.Informers(url=server.url) as informers, blocking.Informers(url=server.url) as later:
        pods = informers.watch("pods")
        pods.synced(timeout=PATIENCE)
        server.create(pod("web-0"))
        watched = pods.until(lambda pods: pods.get("shop/web-0"), PATIENCE)
        listed_pods = later.watch("pods")
        listed_pods.synced(timeout=PATIENCE)
        assert watched == listed_pods["shop/web-0"]
        assert watched.to_dict() == listed_pods["shop/web-0"].to_dict()
        assert watched is not None and watched.to_dict() == server.get("pods", "shop", "web-0") | {
            "metadata": watched.metadata.to_dict()
        }


def test_object_outlives_its_informer(server: Server) -> None:
    server.create(pod("web-0"))
    with blocking.Informers(url=server.url) as informers:
        pods = informers.watch("pods")
        pods.synced(timeout=PATIENCE)
        web = pods["shop/web-0"]
    assert web.spec.nodeName == "n1"
    assert isinstance(pods.freshness, steadfast.Stopped)
    assert len(pods) == 1
