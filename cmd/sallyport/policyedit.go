package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sallyport/sallyport/broker"
	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// editMark begins the lines at the head of an edited text that are ours.
const editMark = "#:"

func newPolicyEdit() *cobra.Command {
	var f adminFlags
	var reason string
	cmd := &cobra.Command{
		Use:   "edit NAME",
		Short: "Change a policy in your editor",
		Long: `Change a policy in your editor: $VISUAL, else $EDITOR, else vi, on a file that you alone can read. What cannot be taken is opened
again, with what is wrong at its head. A text that you leave as it was changes nothing. What somebody else has written meanwhile is
not overwritten: your text is then kept, and its place told.

Exit codes: 0 done, or nothing changed · 1 the editor failed · 2 usage, or you left a broken text as it was · 3 a gRPC error.`,
		Example: `  sallyport policy edit payments --reason 'fewer attempts in the evening'
  EDITOR='code --wait' sallyport policy edit payments`,
		Args: exactly("NAME"),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			return f.with(cmd, func(ctx context.Context, c *client.Client) error {
				asking, cancel := context.WithTimeout(ctx, adminTime)
				defer cancel()
				p, err := getPolicy(asking, c, args[0])
				if err != nil {
					return err
				}
				return f.edit(ctx, cmd, c, p, reason)
			})
		}),
	}
	f.declare(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit")
	cmd.ValidArgsFunction = completeArgs(f.policyNames())
	return cmd
}

// edit opens the policy until it is taken, or left as it was.
func (f *adminFlags) edit(ctx context.Context, cmd *cobra.Command, c *client.Client, p *pb.Policy, reason string) error {
	if p.GetReadOnly() {
		return &exitError{code: exitGRPC, err: fmt.Errorf(
			"FAILED_PRECONDITION: %s is read-only (%s): change the broker's file, or apply a policy of your own", revisionText(p), sourceText(p))}
	}
	body, err := yamlOf(&pb.PolicyFile{Policies: []*pb.Policy{bare(p)}})
	if err != nil {
		return err
	}
	text, err := newEdited()
	if err != nil {
		return err
	}
	var wrong error
	for {
		was := body
		if err := text.write(editHead(p, wrong), body); err != nil {
			return errors.Join(err, text.remove())
		}
		body, err = text.open(ctx, cmd)
		if err != nil && (bytes.Equal(body, was) || body == nil) && wrong == nil {
			return errors.Join(err, text.remove()) // no work of anybody is lost
		}
		if err != nil {
			return text.kept(err)
		}
		if bytes.Equal(body, was) {
			if wrong != nil {
				return text.kept(wrong)
			}
			sayf(cmd.ErrOrStderr(), "unchanged; nothing was written\n")
			return text.remove()
		}
		next, err := editedPolicy(p, body)
		if err != nil {
			wrong = usage(err)
			continue
		}
		s := &step{what: stepUpdate, name: p.GetName(), now: p, next: next}
		if s.changes, err = changesBetween(p, next); err != nil {
			return text.kept(err)
		}
		if len(s.changes) == 0 {
			sayf(cmd.ErrOrStderr(), "nothing in it has changed; nothing was written\n")
			return text.remove()
		}
		switch err := s.do(ctx, c, reason, false); {
		case err == nil:
			return errors.Join(f.edited(cmd, s), text.remove())
		case status.Code(err) != codes.InvalidArgument:
			return text.kept(refused(err, f.broker))
		default:
			wrong = refused(err, f.broker)
		}
	}
}

func (f *adminFlags) edited(cmd *cobra.Command, s *step) error {
	if f.output != formText {
		return printPlan(cmd.OutOrStdout(), f.output, []*step{s}, true)
	}
	printChanges(cmd.OutOrStdout(), s.changes)
	printWarnings(cmd.OutOrStdout(), s.name, s.warnings)
	sayf(cmd.OutOrStdout(), "%s\n", plain(s.done()))
	return nil
}

// editHead is what stands over the text, line by line.
func editHead(p *pb.Policy, wrong error) []string {
	head := []string{
		editMark + " " + plain(revisionText(p)) + ", as it is. Save and leave the editor to write it; leave it as it is to write nothing.",
		editMark + " What is absent is inherited. These lines are no part of it.",
	}
	if wrong != nil {
		for line := range strings.Lines(wrong.Error()) {
			head = append(head, editMark+" WRONG: "+plain(strings.TrimSpace(line)))
		}
	}
	return head
}

// editedPolicy reads what was edited. Lines are counted as they will stand under the head that tells of them.
func editedPolicy(p *pb.Policy, body []byte) (*pb.Policy, error) {
	all, err := broker.ParsePolicyFile("line", body)
	if err != nil {
		under := len(editHead(p, err))
		_, err = broker.ParsePolicyFile("line", append(bytes.Repeat([]byte{'\n'}, under), body...))
	}
	switch {
	case err != nil:
		return nil, err
	case len(all) != 1:
		return nil, fmt.Errorf("there are %d policies in it: leave the one that you edit", len(all))
	case all[0].GetName() != p.GetName():
		return nil, fmt.Errorf("policies[0].name: a policy keeps its name, %s: create another one with policy apply", p.GetName())
	}
	next := bare(all[0])
	next.Etag = p.GetEtag()
	return next, nil
}
