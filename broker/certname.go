package broker

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
)

// maxNameBytes is how long the name of a caller may be.
const maxNameBytes = 255

// nameIn reads whom a client certificate names: its SPIFFE id, or where it has none its DNS name. There is one way to read each
// certificate, so that nobody is two callers with one. Its errors are for the log, and repeat nothing of the certificate.
func nameIn(cert *x509.Certificate) (string, error) {
	for _, u := range cert.URIs {
		if u.Scheme == "spiffe" {
			return spiffeIn(cert)
		}
	}
	switch n := len(cert.DNSNames); n {
	case 0:
		return "", errors.New("it has neither a SPIFFE id nor a DNS name")
	case 1:
		name := strings.ToLower(cert.DNSNames[0])
		return name, checkDNS(name)
	default:
		return "", fmt.Errorf("it has %d DNS names and no SPIFFE id; one is read", n)
	}
}

// spiffeIn reads an X.509-SVID of a workload: one URI and no more (X509-SVID §2), in a certificate that signs no others (§5.2).
func spiffeIn(cert *x509.Certificate) (string, error) {
	if n := len(cert.URIs); n > 1 {
		return "", fmt.Errorf("it has a SPIFFE id and %d URIs in all; one is read", n)
	}
	if cert.IsCA || cert.KeyUsage&(x509.KeyUsageCertSign|x509.KeyUsageCRLSign) != 0 {
		return "", errors.New("it has a SPIFFE id and may sign certificates; that of a workload may not")
	}
	id := cert.URIs[0].String()
	return id, checkSPIFFE(id)
}

// checkDNS says what keeps s from being the DNS name of one host. It has two labels or more: the names of one label are left to
// tokens, so that a certificate never takes the name of one by chance.
func checkDNS(s string) error {
	if len(s) > maxHostBytes {
		return errors.New("a DNS name of more than 253 bytes is not taken")
	}
	labels := strings.Split(s, ".")
	if len(labels) < 2 {
		return errors.New("a DNS name of one label is not taken")
	}
	for _, l := range labels {
		if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' || !consistsOf(l, isLabelByte) {
			return errors.New("the labels of a DNS name consist of 1 to 63 lower case letters, digits and - _; a wildcard names nobody")
		}
	}
	if consistsOf(labels[len(labels)-1], isDigit) {
		return errors.New("a DNS name does not end in a number: that is an address")
	}
	return nil
}

// maxHostBytes is the longest DNS name as it is written (RFC 1035 §2.3.4).
const maxHostBytes = 253

func isLabelByte(b byte) bool { return b != '.' && isTrustDomainByte(b) }

func isDigit(b byte) bool { return '0' <= b && b <= '9' }
