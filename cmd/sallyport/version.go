package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// version is set by the linker (-X main.version=…), which can set variables only; it never changes afterwards.
var version string

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Print the version of this program, the Go release that built it, and the platform.",
		Example: "  sallyport version",
		Args:    cobra.NoArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "sallyport %s %s %s/%s\n", programVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err //nolint:wrapcheck // a broken pipe needs no more words
		}),
	}
}

// programVersion is what the linker was told, else what the module system knows. It is a token (RFC 9110 §5.6.2), since it goes
// into User-Agent.
func programVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return strings.Trim(info.Main.Version, "()") // "(devel)" is no token
	}
	return "unversioned"
}
