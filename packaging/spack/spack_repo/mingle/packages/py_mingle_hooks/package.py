# Licensed under the Apache License, Version 2.0. See LICENSE.

import os

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyMingleHooks(PythonPackage):
    """One world for every node: rendezvous, job scripts and hooks for multi-node jobs."""

    # The repository's address: export MINGLE_SOURCE_URL, or write it here in your own copy.
    homepage = git = os.environ.get("MINGLE_SOURCE_URL", "")

    license("Apache-2.0")

    # A release adds its own line, with the tag's commit.
    version("main", branch="main")
    version("1.0.0", tag="v1.0.0")

    variant("multicast", default=False, description="Find rank 0 by multicast too")

    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-hatchling@1.27:", type="build")
    depends_on("py-click@8.1:", type=("build", "run"))
    depends_on("py-jinja2@3.1:", type=("build", "run"))
    depends_on("py-ifaddr@0.2:", type=("build", "run"))
    depends_on("py-multicast-expert@1.6:", type=("build", "run"), when="+multicast")
    depends_on("py-tomli@2.0:", type=("build", "run"), when="^python@:3.10")
