package main

import (
	"log/slog"
	"strings"
)

// reloadLog tells what became of files that were read again: in the log, and as a count.
type reloadLog struct {
	*slog.Logger
	count func(what string, refused bool)
}

// refused tells why a new file is not taken, one record for each problem.
func (l reloadLog) refused(what string, err error) {
	l.count(what, true)
	for line := range strings.Lines(err.Error()) {
		l.Error("reload refused; what was in force stays", "what", what, "error", strings.TrimSpace(line))
	}
}

// sound tells that a file is in force now, or was already.
func (l reloadLog) sound(what, message string, attrs ...any) {
	l.count(what, false)
	l.Info(message, attrs...)
}
