package broker

import (
	"errors"
	"strings"
)

// spiffeScheme begins a SPIFFE id.
const spiffeScheme = "spiffe://"

// checkSPIFFE says what keeps s from being the SPIFFE id of a workload: a trust domain and a path, nothing else (SPIFFE-ID §2). The
// form is the only one: an id is compared byte by byte, so a second way to write it would be a second caller.
func checkSPIFFE(s string) error {
	rest, ok := strings.CutPrefix(s, spiffeScheme)
	if !ok {
		return errors.New("a SPIFFE id begins with spiffe:// in lower case")
	}
	if len(s) > maxNameBytes {
		return errors.New("a SPIFFE id of more than 255 bytes is not taken")
	}
	domain, path, ok := strings.Cut(rest, "/")
	switch {
	case domain == "" || !consistsOf(domain, isTrustDomainByte):
		return errors.New("the trust domain of a SPIFFE id consists of lower case letters, digits and . - _")
	case !ok || path == "":
		return errors.New("a SPIFFE id without a path names a trust domain and no workload")
	}
	for segment := range strings.SplitSeq(path, "/") {
		switch {
		case segment == "":
			return errors.New("the path of a SPIFFE id has an empty segment")
		case segment == "." || segment == "..":
			return errors.New("the path of a SPIFFE id has a dot segment")
		case !consistsOf(segment, isPathByte):
			return errors.New("the path of a SPIFFE id consists of letters, digits and . - _ between slashes")
		}
	}
	return nil
}

func isTrustDomainByte(b byte) bool {
	return 'a' <= b && b <= 'z' || '0' <= b && b <= '9' || b == '.' || b == '-' || b == '_'
}

func isPathByte(b byte) bool { return isTrustDomainByte(b) || 'A' <= b && b <= 'Z' }

func consistsOf(s string, allowed func(byte) bool) bool {
	for i := range len(s) {
		if !allowed(s[i]) {
			return false
		}
	}
	return true
}
