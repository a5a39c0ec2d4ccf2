"""Certificates of a new authority, made by OpenSSL."""

import os

from process import run

NAME = "www.example.com"
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Certificates:
    """A certificate authority, and a certificate for this host."""

    def __init__(self, directory):
        self.directory = directory
        self.ca, ca_key = self.path("ca.pem"), self.path("ca.key")
        run("openssl", "req", "-x509", *NEW_KEY, "-keyout", ca_key, "-out", self.ca, "-subj", "/CN=ca", "-days", 2)
        self.certificate, self.key = self.certify("server")

    def path(self, name):
        return os.path.join(self.directory, name)

    def certify(self, name, address="127.0.0.1"):
        certificate, key, request, ext = (self.path(f"{name}.{end}") for end in ("pem", "key", "csr", "ext"))
        run("openssl", "req", "-new", *NEW_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        with open(ext, "w") as file:
            file.write(f"subjectAltName=DNS:{NAME},IP:{address}\n")
        authority = ("-CA", self.ca, "-CAkey", self.path("ca.key"), "-CAcreateserial")
        run("openssl", "x509", "-req", "-in", request, *authority, "-days", 2, "-extfile", ext, "-out", certificate)
        return certificate, key
