"""What ./telegrad image puts together, without making an image: lists, links, contents."""
import json
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else pathlib.Path.cwd()
FOLDER = ROOT / "deploy" / "image"
sys.path.insert(0, str(FOLDER))
import make  # noqa: E402

PACKAGES = [("libc6", "2.36-9+deb12u14", ""), ("libstdc++6", "12.2.0-14", ""),
            ("openssh-server", "1:9.2p1-2", "")]


class Lists(unittest.TestCase):
    def test_no_package_is_wanted_and_left_out(self):
        for kind in make.PROGRAMS:
            wanted, left_out = make.read_packages(kind)
            self.assertFalse(set(wanted) & left_out, kind)
            self.assertEqual(len(set(wanted)), len(wanted), kind)
            for name in (*wanted, *left_out):
                self.assertRegex(name, r"^[a-z0-9][a-z0-9+.-]+$")

    def test_the_containerfile_takes_the_same_lists(self):
        text = (FOLDER / "Containerfile").read_text()
        for name in {name for lists in make.LISTS.values() for name in lists} - set(make.PROGRAMS):
            self.assertIn(f"deploy/image/{name}.packages", text)
        self.assertIn("USER 1000:1000", text)
        self.assertIn(str(make.UID), "1000")

    def test_the_page_has_the_bounds(self):
        page = (ROOT / "docs" / "deploy" / "images.md").read_text()
        self.assertIn("More than {runtime} and {trainer}".format(**make.MEGABYTES), page)


class Contents(unittest.TestCase):
    def test_each_package_has_its_version_once(self):
        text = make.contents("runtime", "0.2.0", PACKAGES, 0)
        self.assertEqual(text, make.contents("runtime", "0.2.0", PACKAGES, 0))
        found = json.loads(text)
        self.assertEqual(found["spdxVersion"], "SPDX-2.3")
        self.assertEqual(found["creationInfo"]["created"], "1970-01-01T00:00:00Z")
        self.assertEqual({each["name"]: each["versionInfo"] for each in found["packages"]},
                         {"telegrad": "0.2.0", **{name: its for name, its, _ in PACKAGES}})
        names = [each["SPDXID"] for each in found["packages"]]
        self.assertEqual(len(set(names)), len(names))
        for name in names:
            self.assertRegex(name, r"^SPDXRef-[A-Za-z0-9.-]+$")

    def test_what_scripts_of_packages_would_do_is_done(self):
        with tempfile.TemporaryDirectory() as tree:
            library = f"usr/lib/{os.uname().machine}-linux-gnu"
            os.makedirs(f"{tree}/{library}/openblas-pthread")
            os.makedirs(f"{tree}/usr/bin")
            open(f"{tree}/{library}/openblas-pthread/libblas.so.3", "w").close()
            open(f"{tree}/usr/bin/cat", "w").close()
            make.links(tree)
            self.assertEqual(os.readlink(f"{tree}/{library}/libblas.so.3"),
                             "openblas-pthread/libblas.so.3")
            self.assertEqual(os.readlink(f"{tree}/usr/bin/sh"), "dash")
            self.assertFalse(os.path.islink(f"{tree}/usr/bin/cat"))  # what is there stays


if __name__ == "__main__":
    unittest.main(verbosity=2)
