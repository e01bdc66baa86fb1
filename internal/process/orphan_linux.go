package process

import (
	"os/exec"
	"syscall"
)

// dieWithUs has the kernel end the process when the test is killed, or panics past its time.
func dieWithUs(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
