package call

import "strings"

// Resolve reads a reference as the target's server means it (RFC 3986 §5.2, with the target as the base), as a Location is (RFC 9110
// §10.2.2), and judges what comes out as [ParseTarget] does. A fragment is dropped: it is never sent. Nothing is unescaped on the way,
// so that an encoded dot segment stays one, and is refused.
func (t *Target) Resolve(reference string) (Target, error) {
	reference, _, _ = strings.Cut(reference, "#")
	target, problem := parseTarget(t.absolute(reference))
	if problem != "" {
		return Target{}, &InvalidError{Field: "Location", Problem: problem}
	}
	return target, nil
}

// absolute is the transformation of RFC 3986 §5.2.2, component by component as written.
func (t *Target) absolute(reference string) string {
	base := t.Scheme + "://" + t.Authority
	switch {
	case hasScheme(reference):
		scheme, rest, _ := strings.Cut(reference, ":")
		if !strings.HasPrefix(rest, "//") {
			return reference // no authority: no http URL
		}
		return scheme + "://" + withoutDots(rest[2:])
	case strings.HasPrefix(reference, "//"):
		return t.Scheme + "://" + withoutDots(reference[2:])
	case reference == "":
		return base + t.RequestTarget
	case reference[0] == '?':
		return base + t.Path + reference
	case reference[0] == '/':
		return base + resolvedPath(reference)
	}
	return base + resolvedPath(t.Path[:strings.LastIndexByte(t.Path, '/')+1]+reference)
}

// hasScheme: what stands before the first colon is a scheme (RFC 3986 §3.1), and no path segment.
func hasScheme(reference string) bool {
	scheme, _, ok := strings.Cut(reference, ":")
	if !ok || scheme == "" || !isAlpha(scheme[0]) {
		return false
	}
	for i := range len(scheme) {
		if c := scheme[i]; !isAlpha(c) && !isDigit(c) && c != '+' && c != '-' && c != '.' {
			return false
		}
	}
	return true
}

// withoutDots removes the dot segments of what follows "//".
func withoutDots(rest string) string {
	end := strings.IndexAny(rest, "/?")
	if end < 0 || rest[end] == '?' {
		return rest
	}
	return rest[:end] + resolvedPath(rest[end:])
}

// resolvedPath removes the dot segments of a path that begins with a slash (RFC 3986 §5.2.4); the query stays as it is.
func resolvedPath(pathAndQuery string) string {
	path, query, asked := strings.Cut(pathAndQuery, "?")
	var kept []string
	segments := strings.Split(path[1:], "/")
	for i, segment := range segments {
		last := i == len(segments)-1
		switch segment {
		case ".", "..":
			if segment == ".." && len(kept) > 0 {
				kept = kept[:len(kept)-1]
			}
			if last {
				kept = append(kept, "") // "/a/." is "/a/"
			}
		default:
			kept = append(kept, segment)
		}
	}
	path = "/" + strings.Join(kept, "/")
	if asked {
		return path + "?" + query
	}
	return path
}
