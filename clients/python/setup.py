"""Adds to the package what is made of other files of the tree: the stubs of proto/, and the service config of all clients."""

import importlib.resources
import pathlib
import shutil

from grpc_tools import protoc
from setuptools import setup
from setuptools.command.build_py import build_py

CLIENTS = pathlib.Path(__file__).resolve().parent.parent
PROTO = CLIENTS.parent / "proto"


class Build(build_py):
    def run(self):
        super().run()
        out = self.build_lib
        sources = [str(PROTO / "sallyport/v1" / name) for name in ("call.proto", "call_service.proto")]
        known = importlib.resources.files("grpc_tools").joinpath("_proto")  # protobuf's own types
        arguments = [f"--proto_path={PROTO}", f"--proto_path={known}"]
        arguments += [f"--python_out={out}", f"--pyi_out={out}", f"--grpc_python_out={out}"]
        if protoc.main(["protoc", *arguments, *sources]) != 0:
            raise SystemExit("protoc failed")
        shutil.copy(CLIENTS / "service_config.json", pathlib.Path(out, "sallyport/client"))


setup(cmdclass={"build_py": Build})
