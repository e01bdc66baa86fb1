package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// completionTime bounds what TAB waits for. A broker that is not there shows nothing.
const completionTime = time.Second

// mostCompletions is as many names as anybody looks at.
const mostCompletions = 1000

// completeFlag gives a flag with a closed list its values on TAB.
func completeFlag(cmd *cobra.Command, flag string, values ...string) {
	completeFlagBy(cmd, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

func completeFlagBy(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // the flag was declared a line before
	}
}

// completeArgs completes the arguments in turn; a nil one is free text.
func completeArgs(each ...cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= len(each) || each[len(args)] == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return each[len(args)](cmd, args, typed)
	}
}

// names asks the broker for names that begin as typed.
func (f *adminFlags) names(ask func(ctx context.Context, c *client.Client) []cobra.Completion) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		c, err := f.dial()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer func() { _ = c.Close() }() // the answer is here
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		var fitting []cobra.Completion
		for _, name := range ask(ctx, c) {
			// What is not printable would act on the terminal of whoever pressed TAB.
			if strings.HasPrefix(name, typed) && plain(strings.ReplaceAll(name, "\t", "")) == strings.ReplaceAll(name, "\t", "") {
				fitting = append(fitting, name)
			}
		}
		return fitting, cobra.ShellCompDirectiveNoFileComp
	}
}

// policyNames completes policies.
func (f *adminFlags) policyNames() cobra.CompletionFunc {
	return f.names(func(ctx context.Context, c *client.Client) []cobra.Completion {
		resp, err := c.Policies().ListPolicies(ctx, &pb.ListPoliciesRequest{PageSize: mostCompletions})
		if err != nil {
			return nil
		}
		names := make([]cobra.Completion, len(resp.GetPolicies()))
		for i, p := range resp.GetPolicies() {
			names[i] = cobra.CompletionWithDesc(p.GetName(), plain(matchText(p.GetMatch())))
		}
		return names
	})
}

// originNames completes origins.
func (f *adminFlags) originNames() cobra.CompletionFunc {
	return f.names(func(ctx context.Context, c *client.Client) []cobra.Completion {
		resp, err := c.Origins().ListOrigins(ctx, &pb.ListOriginsRequest{PageSize: mostCompletions})
		if err != nil {
			return nil
		}
		names := make([]cobra.Completion, len(resp.GetOrigins()))
		for i, o := range resp.GetOrigins() {
			names[i] = cobra.CompletionWithDesc(o.GetOrigin(), stateText(o))
		}
		return names
	})
}

// targets completes what the audit speaks of.
func (f *adminFlags) targets() cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		policies, _ := f.policyNames()(cmd, args, typed)
		origins, _ := f.originNames()(cmd, args, typed)
		return append(policies, origins...), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFiles gives a flag the policy files of the directory.
func completeFiles(cmd *cobra.Command, flag string) {
	if err := cmd.MarkFlagFilename(flag, "yaml", "yml", "json"); err != nil {
		panic(err) // the flag was declared a line before
	}
}

func methodNames() cobra.CompletionFunc {
	return cobra.FixedCompletions([]cobra.Completion{"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "POST", "PATCH"}, cobra.ShellCompDirectiveNoFileComp)
}

// operationIDs completes the newest operations of the caller.
func (f *operationFlags) operationIDs() cobra.CompletionFunc {
	return f.names(func(ctx context.Context, c *client.Client) []cobra.Completion {
		resp, err := c.ListOperations(ctx, &pb.ListOperationsRequest{PageSize: pageOfAll, Caller: f.caller})
		if err != nil {
			return nil
		}
		ids := make([]cobra.Completion, len(resp.GetOperations()))
		for i, o := range resp.GetOperations() {
			ids[i] = cobra.CompletionWithDesc(o.GetOperationId(), operationStateWord(o.GetState()))
		}
		return ids
	})
}
