//go:build !linux

package sqlite_test

import (
	"context"
	"fmt"
)

func linuxChild(_ context.Context, role, _ string) error { return fmt.Errorf("no role %q", role) }
