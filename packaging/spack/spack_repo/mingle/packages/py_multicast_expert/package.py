# Licensed under the Apache License, Version 2.0. See LICENSE.

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyMulticastExpert(PythonPackage):
    """Sockets for multicast on every interface."""

    pypi = "multicast_expert/multicast_expert-1.6.0.tar.gz"

    license("MIT")

    version("1.6.0", sha256="322c4b7ee7bee6bc9dddf1923a082be72cdc2fe4fdb5dfdf9c9e174f2b9c2f30")

    depends_on("python@3.9:3", type=("build", "run"))
    depends_on("py-poetry-core@1:", type="build")
    depends_on("py-netifaces@0.11:", type=("build", "run"))
    depends_on("py-typing-extensions@4.0.1:", type=("build", "run"))
