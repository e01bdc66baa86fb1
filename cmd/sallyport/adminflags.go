package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/sallyport/sallyport/client"
)

// adminTime bounds one question to a broker. Its store may keep a write waiting for ten seconds.
const adminTime = 20 * time.Second

// The forms of output.
const (
	formText = "text"
	formJSON = "json"
	formYAML = "yaml"
)

// adminFlags are those of every command that administers a broker.
type adminFlags struct {
	brokerFlags
	output string
}

func (f *adminFlags) declare(cmd *cobra.Command) {
	f.brokerFlags.declare(cmd.Flags())
	declareOutput(cmd, &f.output)
}

// declareOutput declares -o where all three forms are known.
func declareOutput(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", formText, "text | json (protobuf JSON) | yaml (the same, names as in policy files)")
	completeFlag(cmd, "output", formText, formJSON, formYAML)
}

// with dials the broker and does the work; what the broker refuses becomes lines and the exit code of it.
func (f *adminFlags) with(cmd *cobra.Command, work func(ctx context.Context, c *client.Client) error) error {
	if err := oneOf("output", f.output, formText, formJSON, formYAML); err != nil {
		return err
	}
	c, err := f.dial()
	if err != nil {
		return usage(err)
	}
	defer func() { _ = c.Close() }() // the answers are here
	return refused(work(cmd.Context(), c), f.broker)
}

// ask is [adminFlags.with] for one question and its answer.
func (f *adminFlags) ask(cmd *cobra.Command, question func(ctx context.Context, c *client.Client) (proto.Message, error), text func(m proto.Message)) error {
	return f.with(cmd, func(ctx context.Context, c *client.Client) error {
		ctx, cancel := context.WithTimeout(ctx, adminTime)
		defer cancel()
		answer, err := question(ctx, c)
		if err != nil {
			return err
		}
		if f.output != formText {
			return printMessage(cmd.OutOrStdout(), f.output, answer)
		}
		text(answer)
		return nil
	})
}
