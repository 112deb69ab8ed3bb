"""Files of a release: archives, notices, bill of materials, image and checksums.

All functions are pure or write one file. Equal inputs give equal bytes, so that anyone can repeat a release: entries are
sorted, owner IDs are zero, and all times are the time of the commit.
"""

import gzip
import hashlib
import io
import json
import pathlib
import re
import tarfile
import uuid

# The user of the image, as in images of Debian without a shell.
USER = "65532:65532"


def shipped(tree):
    """Returns the (name, version) pairs of `cargo tree --prefix none`, sorted, without repetitions."""
    lines = (line.split() for line in tree.splitlines() if line.strip())
    return sorted({(words[0], words[1].removeprefix("v")) for words in lines})


def checksums_of_lock(lock):
    """Returns the SHA-256 of each downloaded package in Cargo.lock, by (name, version)."""
    sums = {}
    for block in lock.split("[[package]]")[1:]:
        fields = dict(re.findall(r'^(name|version|checksum) = "([^"]*)"', block, re.MULTILINE))
        if "checksum" in fields:
            sums[fields["name"], fields["version"]] = fields["checksum"]
    return sums


def bill_of_materials(metadata, tree, lock, version, commit, time):
    """Returns a CycloneDX document of the crates that the program contains.

    `metadata` is the output of `cargo metadata`, `tree` the output of `cargo tree` for the target. `tree` selects
    the crates, because `metadata` has the features of the whole workspace. `time` is an RFC 3339 timestamp.
    """
    wanted = set(shipped(tree))
    packages = {package["id"]: package for package in metadata["packages"] if key_of(package) in wanted}
    missing = wanted - {key_of(package) for package in packages.values()}
    if missing:
        raise ValueError(f"cargo metadata lacks these packages of cargo tree: {sorted(missing)}")
    sums = checksums_of_lock(lock)
    root = next(package for package in packages.values() if package["name"] == "steadfast-cli")
    others = [package for package in packages.values() if package is not root]
    edges = {node["id"]: node["dependencies"] for node in metadata["resolve"]["nodes"]}
    # One commit has one number: the document is repeatable.
    serial = uuid.uuid5(uuid.NAMESPACE_URL, f"{root['repository']}#{version}+{commit}")
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"timestamp": time, "component": {**component(root, sums), "type": "application"}},
        "components": sorted((component(package, sums) for package in others), key=lambda part: part["bom-ref"]),
        "dependencies": sorted(
            (
                {
                    "ref": purl(package),
                    "dependsOn": sorted({purl(packages[other]) for other in edges.get(name, []) if other in packages}),
                }
                for name, package in packages.items()
            ),
            key=lambda part: part["ref"],
        ),
    }


def key_of(package):
    return package["name"], package["version"]


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, sums):
    """Returns the CycloneDX component of a package."""
    part = {
        "type": "library",
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "purl": purl(package),
    }
    if package.get("license"):
        # Old manifests separate alternatives by a slash.
        part["licenses"] = [{"expression": re.sub(r"\s*/\s*", " OR ", package["license"])}]
    if key_of(package) in sums:
        part["hashes"] = [{"alg": "SHA-256", "content": sums[key_of(package)]}]
    if package.get("repository"):
        part["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return part


def notices(metadata, tree):
    """Returns the licence texts of the crates that the program contains. Equal texts occur once, below all names."""
    wanted, texts = set(shipped(tree)), {}
    for package in metadata["packages"]:
        # Packages without a source are parts of this repository, whose licence is a file of its own.
        if key_of(package) not in wanted or package["source"] is None:
            continue
        name = f"{package['name']} {package['version']} ({package['license']})"
        files = sorted(
            path
            for path in pathlib.Path(package["manifest_path"]).parent.iterdir()
            if path.is_file() and re.match(r"(licen[cs]e|copying|notice|copyright|unlicense)", path.name, re.IGNORECASE)
        )
        for path in files:
            texts.setdefault(path.read_text(errors="replace").strip(), set()).add(name)
        if not files:
            texts.setdefault("The package contains no licence text. Its manifest states the licence above.", set()).add(name)
    parts = sorted((sorted(names), text) for text, names in texts.items())
    return "\n\n".join("\n".join(names) + "\n\n" + text + "\n\n" + "-" * 80 for names, text in parts) + "\n"


def tar(entries, time):
    """Returns an uncompressed tar archive. `entries` are (path, mode, content); the content of a folder is None."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path, mode, content in sorted(entries, key=lambda entry: entry[0]):
            info = tarfile.TarInfo(path)
            info.mode, info.mtime = mode, time
            if content is None:
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def compressed(content):
    """Returns the content in gzip's format, without a time."""
    return gzip.compress(content, mtime=0)


def image(program, libraries, documents, version, commit, time, created, architecture):
    """Returns an OCI archive with one layer: the program, the libraries that it loads, and its licences.

    `libraries` and `documents` are (path, content) pairs. `time` is in seconds, `created` the same time in RFC 3339.
    """
    files = [("usr/local/bin/steadfast", 0o755, program)]
    files += [(path, 0o755, content) for path, content in libraries]
    files += [(f"usr/share/doc/steadfast/{name}", 0o644, content) for name, content in documents]
    # Programs look up the name of their user.
    files.append(("etc/passwd", 0o644, b"steadfast:x:65532:65532::/:/sbin/nologin\n"))
    folders = {str(parent) for path, *_ in files for parent in pathlib.PurePosixPath(path).parents} - {"."}
    entries = files + [(folder, 0o755, None) for folder in folders] + [("tmp", 0o1777, None)]
    layer = tar(entries, time)
    packed = compressed(layer)
    labels = {
        "org.opencontainers.image.title": "steadfast",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.revision": commit,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.source": "https://github.com/steadfast-rs/steadfast",
    }
    config = as_json(
        {
            "architecture": architecture,
            "os": "linux",
            "created": created,
            "config": {
                "User": USER,
                "Entrypoint": ["/usr/local/bin/steadfast"],
                "Cmd": ["notify", "-c", "/etc/steadfast/notify.toml", "--metrics", "0.0.0.0:9090"],
                "Labels": labels,
            },
            "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
            "history": [{"created": created, "created_by": ".ci/release"}],
        }
    )
    manifest = as_json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("application/vnd.oci.image.config.v1+json", config),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar+gzip", packed)],
        }
    )
    entry = descriptor("application/vnd.oci.image.manifest.v1+json", manifest)
    entry["platform"] = {"architecture": architecture, "os": "linux"}
    # podman reads the first annotation, containerd and docker the second one.
    entry["annotations"] = {
        "org.opencontainers.image.ref.name": version,
        "io.containerd.image.name": f"docker.io/library/steadfast:{version}",
    }
    index = as_json(
        {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry]}
    )
    blobs = [(f"blobs/sha256/{digest(blob).removeprefix('sha256:')}", 0o644, blob) for blob in (packed, config, manifest)]
    layout = as_json({"imageLayoutVersion": "1.0.0"})
    return tar([("oci-layout", 0o644, layout), ("index.json", 0o644, index), *blobs], time)


def layer_of(archive):
    """Returns the uncompressed layer of an OCI archive, by its index, as a registry client reads it."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:

        def blob(described):
            content = opened.extractfile("blobs/" + described["digest"].replace(":", "/")).read()
            if digest(content) != described["digest"] or len(content) != described["size"]:
                raise ValueError(f"the blob {described['digest']} does not have this digest and size")
            return content

        index = json.load(opened.extractfile("index.json"))
        manifest = json.loads(blob(index["manifests"][0]))
        layer = gzip.decompress(blob(manifest["layers"][0]))
        diff_ids = json.loads(blob(manifest["config"]))["rootfs"]["diff_ids"]
    if diff_ids != [digest(layer)]:
        raise ValueError("the configuration of the image describes another layer")
    return layer


def descriptor(media_type, content):
    return {"mediaType": media_type, "digest": digest(content), "size": len(content)}


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def as_json(value):
    return json.dumps(value, indent=1, sort_keys=True).encode()


def newest_glibc(program):
    """Returns the newest version of glibc that a program's symbols require, as (2, 17), or None."""
    versions = re.findall(rb"GLIBC_(\d+)\.(\d+)(?:\.\d+)?\0", program)
    return max(((int(major), int(minor)) for major, minor in versions), default=None)


def krew_manifest(version, repository, archives):
    """Returns the manifest of the kubectl plugin for krew, in JSON, which krew reads as YAML.

    `archives` are (target, name of the archive, its content). krew links `kubectl-steadfast` to the program.
    """
    platforms = []
    for target, archive, content in sorted(archives):
        machine, system = target.split("-")[0], next(name for name in ("linux", "darwin", "windows") if name in target)
        folder = archive.removesuffix(".tar.gz")
        platforms.append(
            {
                "selector": {"matchLabels": {"os": system, "arch": {"x86_64": "amd64", "aarch64": "arm64"}[machine]}},
                "uri": f"{repository}/releases/download/v{version}/{archive}",
                "sha256": hashlib.sha256(content).hexdigest(),
                "files": [{"from": f"{folder}/{name}", "to": "."} for name in ("steadfast", "LICENSE")],
                "bin": "steadfast",
            }
        )
    manifest = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "steadfast"},
        "spec": {
            "version": f"v{version}",
            "homepage": repository,
            "shortDescription": "Watch what changes in a cluster, and check it",
            "description": (
                "`kubectl steadfast watch` prints every change of resources worded for their kind, and reports when "
                "the output may be out of date. `kubectl steadfast doctor` checks what informers need from a cluster.\n"
            ),
            "platforms": platforms,
        },
    }
    return json.dumps(manifest, indent=2) + "\n"


def sums(folder):
    """Returns the text of SHA256SUMS for the files of a folder, in the format of sha256sum."""
    paths = sorted(path for path in folder.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths)
