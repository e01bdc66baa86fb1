//go:build !linux

package victim

import "os/exec"

// dieWithUs is not to be had here: an audit that is killed leaves its broker behind.
func dieWithUs(*exec.Cmd) {}
