package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/millrace/millrace/cmd/internal/reader/connect"
	"github.com/millrace/millrace/cmd/internal/reader/printer"
)

// Options are the flags of every command that reads the record.
type Options struct {
	connect.Source
	Namespace string
	given     string // the namespace of the flag
	Output    string
	Color     string
	Timeout   time.Duration // of the whole command; 0: none

	recordless bool
}

func (o *Options) add(f *pflag.FlagSet, outputs []string) {
	if !o.recordless {
		o.Source.Add(f)
	}
	f.StringVarP(&o.Namespace, "namespace", "n", o.Namespace, "namespace (default that of the kubeconfig's context)")
	f.StringVarP(&o.Output, "output", "o", o.Output, "output format: "+strings.Join(outputs, ", "))
	f.StringVar(&o.Color, "color", o.Color, "colours: auto (on a terminal), always or never")
	f.DurationVar(&o.Timeout, "timeout", o.Timeout, "time limit of the command; 0 for none")
}

// with opens a session and closes it.
func (o *Options) with(ctx context.Context, out, notes io.Writer, do func(context.Context, *Session) error) error {
	paper, err := printer.NewPaper(out, o.Color)
	if err != nil {
		return err
	}
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Timeout)
		defer cancel()
	}
	s := &Session{Options: *o, Paper: paper, Notes: notes}
	if !o.recordless {
		b, done, err := o.Source.Open(ctx, connect.Patience)
		if err != nil {
			return err
		}
		defer func() { _ = done() }() // the session only reads
		s.Bus = b
	}
	s.given = s.Namespace
	if s.Namespace == "" {
		s.Namespace = contextNamespace()
	}
	err = s.elsewhere(ctx, do(ctx, s))
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		return fmt.Errorf("no answer within %v: --timeout gives it more (%w)", o.Timeout, err)
	}
	return err
}

// contextNamespace is the namespace of the kubeconfig's current context, as for kubectl.
func contextNamespace() string {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	namespace, _, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).Namespace()
	if err != nil || namespace == "" {
		return "default"
	}
	return namespace
}
