# Licensed under the Apache License, Version 2.0. See LICENSE.

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyIfaddr(PythonPackage):
    """The addresses of this host's network interfaces."""

    pypi = "ifaddr/ifaddr-0.2.0.tar.gz"

    license("MIT")

    version("0.2.0", sha256="cc0cbfcaabf765d44595825fb96a99bb12c79716b73b44330ea38ee2b0c4aed4")

    depends_on("py-setuptools", type="build")
