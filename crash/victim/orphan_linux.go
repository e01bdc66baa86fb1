package victim

import (
	"os/exec"
	"syscall"
)

// dieWithUs has the kernel end the process when the audit is.
func dieWithUs(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
