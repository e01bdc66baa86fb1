package main

import (
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// deferredStates are the states as people write them, in the order of the wire.
func deferredStates() []string {
	values := pb.DeferredState(0).Descriptor().Values()
	names := make([]string, 0, values.Len())
	for i := 1; i < values.Len(); i++ {
		names = append(names, deferredStateWord(pb.DeferredState(values.Get(i).Number())))
	}
	return names
}

func deferredStateWord(s pb.DeferredState) string { return word(s.String(), "DEFERRED_STATE_") }

// deferredStateOf is the state that is written so; none for a word that is no state.
func deferredStateOf(word string) pb.DeferredState {
	return pb.DeferredState(pb.DeferredState_value["DEFERRED_STATE_"+strings.ToUpper(word)])
}

// pickFlags are those that pick deferred calls.
type pickFlags struct {
	state, origin, after, before string
	labels                       []string
}

// declare declares them; the states are those that the command can do something with.
func (f *pickFlags) declare(cmd *cobra.Command, states ...string) {
	fs := cmd.Flags()
	fs.StringVar(&f.state, "state", "", "only those in this state: "+strings.Join(states, " | "))
	fs.StringVar(&f.origin, "origin", "", "only those to this origin, for example https://hooks.example.com")
	fs.StringArrayVar(&f.labels, "label", nil, "only those with this label, KEY=VALUE (repeatable: all of them)")
	fs.StringVar(&f.after, "created-after", "", "only those created then or later: an instant (RFC 3339), or how long ago (24h)")
	fs.StringVar(&f.before, "created-before", "", "only those created before then: an instant (RFC 3339), or how long ago (24h)")
	completeFlag(cmd, "state", states...)
	for _, flag := range []string{"label", "created-after", "created-before"} {
		completeFlag(cmd, flag) // nothing is known, and they are no files
	}
}

// filter reads them; nil: none was given.
func (f *pickFlags) filter(states ...string) (*pb.DeferredCallFilter, error) {
	if f.state == "" && f.origin == "" && f.after == "" && f.before == "" && len(f.labels) == 0 {
		return nil, nil //nolint:nilnil // nothing is picked, and nothing is wrong
	}
	p := &pb.DeferredCallFilter{Origin: f.origin}
	if f.state != "" {
		if err := oneOf("state", f.state, states...); err != nil {
			return nil, err
		}
		p.State = deferredStateOf(f.state)
	}
	var err error
	if p.Labels, err = labelsOf(f.labels); err != nil {
		return nil, err
	}
	if p.CreatedAfter, err = instantOf("created-after", f.after, -1); err != nil {
		return nil, err
	}
	p.CreatedBefore, err = instantOf("created-before", f.before, -1)
	return p, err
}

// text says what is picked.
func (f *pickFlags) text() string {
	var parts []string
	for _, p := range []struct{ what, value string }{
		{"state", f.state}, {"origin", f.origin}, {"label", strings.Join(f.labels, ", ")}, {"created after", f.after}, {"created before", f.before},
	} {
		if p.value != "" {
			parts = append(parts, p.what+" "+p.value)
		}
	}
	return strings.Join(parts, ", ")
}

// labelsOf reads KEY=VALUE.
func labelsOf(texts []string) (map[string]string, error) {
	if len(texts) == 0 {
		return nil, nil //nolint:nilnil // none
	}
	labels := make(map[string]string, len(texts))
	for _, text := range texts {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return nil, usagef("--label %q: write KEY=VALUE", text)
		}
		if _, again := labels[key]; again {
			return nil, usagef("--label %s: is given twice", key)
		}
		labels[key] = value
	}
	return labels, nil
}

// instantOf reads an instant, or a duration as people say it: from now on with direction 1, ago with -1. Empty is none.
func instantOf(flag, text string, direction int) (*timestamppb.Timestamp, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // none
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return timestamppb.New(at), nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		if direction < 0 {
			d = -d
		}
		return timestamppb.New(clock().Add(d)), nil
	}
	example := "how long from now (10m)"
	if direction < 0 {
		example = "how long ago (24h)"
	}
	return nil, usagef("--%s %q: give an instant like 2026-11-30T12:00:00Z, or %s", flag, text, example)
}

// named reads what a command that takes names or a filter was given: one of them.
func (f *pickFlags) named(args []string, states ...string) ([]string, *pb.DeferredCallFilter, error) {
	p, err := f.filter(states...)
	switch {
	case err != nil:
		return nil, nil, err
	case p != nil && len(args) > 0:
		return nil, nil, usage(errors.New("names and a filter: give one of them"))
	case p == nil && len(args) == 0:
		return nil, nil, usage(errors.New("name deferred calls, or pick them with --state, --origin, --label, --created-after or --created-before"))
	}
	names := make([]string, len(args))
	for i, a := range args {
		names[i] = deferredName(a)
	}
	return names, p, nil
}
