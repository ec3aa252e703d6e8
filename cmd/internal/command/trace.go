package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/jaeger"
	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/session"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/pkg/events/trace"
)

// localJaeger is the address of Jaeger in a local set-up.
const localJaeger = "http://127.0.0.1:16686"

// traceOptions are the flags of millrace trace.
type traceOptions struct {
	jaeger  string
	version string
	all     bool
}

// newTrace is the command that shows the trace of a change.
func newTrace() *cobra.Command {
	o := traceOptions{jaeger: localJaeger}
	return session.Program{
		Use:   "trace KIND/NAME",
		Short: "Show the trace of an object's newest change: its causes and its effects",
		Long: `Shows the trace of an object's newest change, or of the change to a version: the change
by another client, and every delta, turn and request that followed from it; --all also
shows the spans of the API server and etcd. The record on the bus has the trace's ID, and
Jaeger its spans.

millrace why shows the same from the record alone, even if nothing was traced.`,
		Example: `  millrace trace deploy/web
  millrace trace pod/web-5d4f8-x7x2p -n shop --rv 81442
  millrace trace deploy/web -o json`,
		Args:    cobra.RangeArgs(1, 2),
		Flags:   o.add,
		Outputs: []string{"tree", "json", "yaml"},
		Run:     o.run,
	}.Command()
}

func (o *traceOptions) add(f *pflag.FlagSet) {
	f.StringVar(&o.jaeger, "jaeger", o.jaeger, "`address` of Jaeger's query API")
	f.BoolVar(&o.all, "all", o.all, "also show the spans of the API server and etcd within each request")
	f.StringVar(&o.version, "rv", o.version, "the `resourceVersion` that the change resulted in (default: the newest change)")
}

func (o *traceOptions) run(ctx context.Context, s *session.Session, args []string) error {
	client, err := jaeger.New(o.jaeger)
	if err != nil {
		return fmt.Errorf("read --jaeger: %w", err)
	}
	_, ref, err := s.Object(ctx, args)
	if err != nil {
		return err
	}
	change, err := o.change(ctx, s.Bus, ref)
	if err != nil {
		return err
	}
	found, err := client.Trace(ctx, trace.Context(change.Trace).TraceID().String())
	switch {
	case errors.Is(err, jaeger.ErrNoTrace):
		return fmt.Errorf("jaeger at %s has no span of %s version %s: it has forgotten it, has not got it yet, or is not the one that spans are sent to (%w)",
			o.jaeger, ref, change.ResourceVersion, err)
	case err != nil:
		return fmt.Errorf("%w; name Jaeger's address with --jaeger", err)
	}
	return s.Print(found, func(paper *printer.Paper) {
		paper.Line("%s at version %s, changed %s", paper.In(printer.Bold, ref.String()), change.ResourceVersion, change.At.Local().Format("2006-01-02 15:04:05"))
		jaeger.Draw(paper, found, jaeger.View{All: o.all, Width: paper.Width()})
	})
}

// change is the delta of the change to show.
//
// Errors: the object or the version is not on record, or the change is not traced.
func (o *traceOptions) change(ctx context.Context, archive bus.Archive, ref events.Ref) (events.Delta, error) {
	var found events.Delta
	versions := 0
	passage := bus.Passage{Stream: subject.LogStream(ref.Kind), Subject: subject.Delta(ref), HeadersOnly: true}
	err := archive.Read(ctx, passage, func(batch []events.Message) error {
		for _, m := range batch {
			d, err := events.DecodeDelta(ref, m)
			if err != nil {
				return err
			}
			versions++
			if !d.Sync && (o.version == "" || d.ResourceVersion == o.version) {
				found = d
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return found, fmt.Errorf("look up the changes of %s: %w", ref, err)
	case versions == 0:
		return found, fmt.Errorf("%s is %w", ref, record.ErrNotThere)
	case found.ResourceVersion == "" && o.version != "":
		return found, fmt.Errorf("the record has no version %s of %s; millrace history lists those that it has", o.version, ref)
	case found.ResourceVersion == "":
		return found, fmt.Errorf("no change of %s is on record any more: only how it is", ref)
	case !trace.Sampled(found.Trace):
		return found, fmt.Errorf("the change of %s to version %s was not traced: tracing was off, or the change was not in the sample; millrace why tells its causes", ref, found.ResourceVersion)
	}
	return found, nil
}
