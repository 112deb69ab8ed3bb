"""Tests of the files of a release: `python3 -m unittest discover -s .ci`."""

import hashlib
import io
import json
import pathlib
import tarfile
import tempfile
import unittest

import artifacts

TREE = "steadfast-cli v0.1.0 (/source)\nregex v1.2.3\nmemchr v2.8.0\nmemchr v2.8.0 (*)\n"
LOCK = """
[[package]]
name = "memchr"
version = "2.8.0"
source = "registry+https://example.test"
checksum = "aa11"

[[package]]
name = "steadfast-cli"
version = "0.1.0"
"""


def package(name, version, license="MIT/Apache-2.0", source="registry", manifest="/nonexistent/Cargo.toml"):
    return {
        "id": f"{name}@{version}",
        "name": name,
        "version": version,
        "license": license,
        "source": source,
        "repository": f"https://example.test/{name}",
        "manifest_path": manifest,
    }


def metadata(*packages):
    edges = {"steadfast-cli": ["regex@1.2.3", "trybuild@1.0.0"], "regex": ["memchr@2.8.0"]}
    nodes = [{"id": part["id"], "dependencies": edges.get(part["name"], [])} for part in packages]
    return {"packages": list(packages), "resolve": {"nodes": nodes}}


PACKAGES = (
    package("steadfast-cli", "0.1.0", "Apache-2.0", None),
    package("regex", "1.2.3"),
    package("memchr", "2.8.0", "Unlicense OR MIT"),
    package("memchr", "1.0.0"),
    package("trybuild", "1.0.0"),
)


def bill():
    return artifacts.bill_of_materials(metadata(*PACKAGES), TREE, LOCK, "0.1.0", "abc", "2026-01-01T00:00:00Z")


class BillOfMaterials(unittest.TestCase):
    def test_contains_only_shipped_versions(self):
        names = [(part["name"], part["version"]) for part in bill()["components"]]
        self.assertEqual(names, [("memchr", "2.8.0"), ("regex", "1.2.3")])
        self.assertEqual(bill()["metadata"]["component"]["name"], "steadfast-cli")

    def test_component_has_licence_and_checksum(self):
        memchr, regex = bill()["components"]
        self.assertEqual(memchr["hashes"], [{"alg": "SHA-256", "content": "aa11"}])
        self.assertEqual(regex["licenses"], [{"expression": "MIT OR Apache-2.0"}])
        self.assertNotIn("hashes", regex)

    def test_dependencies_omit_unshipped_packages(self):
        edges = {part["ref"]: part["dependsOn"] for part in bill()["dependencies"]}
        self.assertEqual(edges["pkg:cargo/steadfast-cli@0.1.0"], ["pkg:cargo/regex@1.2.3"])
        self.assertEqual(edges["pkg:cargo/regex@1.2.3"], ["pkg:cargo/memchr@2.8.0"])

    def test_unknown_package_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "memchr"):
            artifacts.bill_of_materials(metadata(*PACKAGES[:2]), TREE, LOCK, "0.1.0", "abc", "")


class Notices(unittest.TestCase):
    def test_equal_texts_occur_once(self):
        with tempfile.TemporaryDirectory() as folder:
            packages = [PACKAGES[0]]
            for name, version in (("regex", "1.2.3"), ("memchr", "2.8.0")):
                place = pathlib.Path(folder, name)
                place.mkdir()
                (place / "LICENSE-MIT").write_text("Permission is granted\n")
                packages.append(package(name, version, manifest=str(place / "Cargo.toml")))
            text = artifacts.notices(metadata(*packages), TREE)
        self.assertEqual(text.count("Permission is granted"), 1)
        self.assertIn("memchr 2.8.0 (MIT/Apache-2.0)\nregex 1.2.3", text)
        self.assertNotIn("steadfast-cli", text)


class Archives(unittest.TestCase):
    def test_equal_entries_give_equal_bytes(self):
        entries = [("b/steadfast", 0o755, b"program"), ("b", 0o755, None), ("b/LICENSE", 0o644, b"text")]
        first = artifacts.compressed(artifacts.tar(entries, 7))
        self.assertEqual(first, artifacts.compressed(artifacts.tar(reversed(entries), 7)))
        with tarfile.open(fileobj=io.BytesIO(first)) as opened:
            found = [(part.name, part.mode, part.uid, part.mtime) for part in opened]
        self.assertEqual(found, [("b", 0o755, 0, 7), ("b/LICENSE", 0o644, 0, 7), ("b/steadfast", 0o755, 0, 7)])

    def test_checksums_cover_all_other_files(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "a.txt").write_bytes(b"abc")
            (folder / "SHA256SUMS").write_bytes(b"old")
            lines = artifacts.sums(folder).splitlines()
        self.assertEqual(lines, ["ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a.txt"])

    def test_newest_glibc_is_numeric(self):
        self.assertEqual(artifacts.newest_glibc(b"x\0GLIBC_2.9\0GLIBC_2.17\0GLIBC_2.2.5\0"), (2, 17))
        self.assertIsNone(artifacts.newest_glibc(b"static"))


class KrewManifest(unittest.TestCase):
    def manifest(self):
        archives = [
            (target, f"steadfast-0.1.0-{target}.tar.gz", target.encode())
            for target in ("x86_64-unknown-linux-musl", "aarch64-apple-darwin")
        ]
        return json.loads(artifacts.krew_manifest("0.1.0", "https://example.test/steadfast", archives))

    def test_platforms_have_archive_and_checksum(self):
        mac, linux = self.manifest()["spec"]["platforms"]
        self.assertEqual(mac["selector"]["matchLabels"], {"os": "darwin", "arch": "arm64"})
        self.assertEqual(linux["selector"]["matchLabels"], {"os": "linux", "arch": "amd64"})
        name = "steadfast-0.1.0-x86_64-unknown-linux-musl"
        self.assertEqual(linux["uri"], f"https://example.test/steadfast/releases/download/v0.1.0/{name}.tar.gz")
        self.assertEqual(linux["sha256"], hashlib.sha256(b"x86_64-unknown-linux-musl").hexdigest())
        self.assertEqual([part["from"] for part in linux["files"]], [f"{name}/steadfast", f"{name}/LICENSE"])

    def test_fields_satisfy_rules_of_krew(self):
        manifest = self.manifest()
        self.assertEqual((manifest["kind"], manifest["metadata"]["name"]), ("Plugin", "steadfast"))
        self.assertRegex(manifest["spec"]["version"], r"^v\d+\.\d+\.\d+")
        # krew's index accepts at most 50 characters without a full stop.
        self.assertLessEqual(len(manifest["spec"]["shortDescription"]), 50)
        for platform in manifest["spec"]["platforms"]:
            self.assertIn(platform["bin"], [part["from"].split("/")[-1] for part in platform["files"]])


class Image(unittest.TestCase):
    def archive(self):
        libraries, documents = [("lib64/ld.so", b"loader")], [("LICENSE", b"text")]
        return artifacts.image(b"program", libraries, documents, "0.1.0", "abc", 7, "2026-01-01T00:00:00Z", "amd64")

    def test_layer_contains_program_and_parents(self):
        with tarfile.open(fileobj=io.BytesIO(artifacts.layer_of(self.archive()))) as layer:
            entries = {part.name: part for part in layer}
            self.assertEqual(layer.extractfile("usr/local/bin/steadfast").read(), b"program")
        self.assertEqual(entries["usr/local/bin/steadfast"].mode, 0o755)
        self.assertEqual(entries["tmp"].mode, 0o1777)
        for folder in ("usr", "usr/local", "usr/local/bin", "lib64", "etc"):
            self.assertTrue(entries[folder].isdir(), folder)
        # Extraction in this order never needs a missing folder.
        names = list(entries)
        self.assertEqual(names, sorted(names))

    def test_changed_blob_is_detected(self):
        archive = self.archive()
        with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
            entries = [(part.name, part.mode, opened.extractfile(part).read()) for part in opened]
        changed = [(name, mode, body + b" " if name.startswith("blobs/") else body) for name, mode, body in entries]
        with self.assertRaisesRegex(ValueError, "digest"):
            artifacts.layer_of(artifacts.tar(changed, 7))

    def test_equal_inputs_give_equal_images(self):
        self.assertEqual(self.archive(), self.archive())


if __name__ == "__main__":
    unittest.main()
