package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/session"
	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
)

func newImport() *cobra.Command {
	return session.Program{
		Use: "import FILE", Short: "Put a record from a file into a separate bus",
		Long: `Creates the streams of an exported file on a bus that no service uses, with the same
sequences and times, for reading them with NATS tools. The commands that read the record
need no bus: they take --record=FILE. The streams never expire, and services refuse to
work on them, so this cannot restore a bus that is in use. Scheduled wakes (WAKE) are left
out, because they would fire. The server must be of version 2.15 or later.`,
		Example: "  millrace bus --data-dir=/tmp/incident &\n  millrace import incident.millrace",
		Args:    cobra.ExactArgs(1), Lasting: true, Writes: true,
		Complete: func(*session.Session, []string, string) []string { return nil },
		Run: func(ctx context.Context, s *session.Session, args []string) error {
			into, is := s.Bus.(*stream.Bus)
			if !is {
				return errors.New("import writes into a bus, and --record reads a file: leave it out, and name the bus with --nats-url")
			}
			f, err := archive.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			return importAll(ctx, s, f, into)
		},
	}.Command()
}

func importAll(ctx context.Context, s *session.Session, f *archive.File, into *stream.Bus) error {
	if err := into.MayImport(ctx); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	streams, messages := 0, uint64(0)
	for _, one := range f.Streams() {
		if one.Name == subject.WakeStream {
			continue
		}
		if err := into.Import(ctx, f, one.Name, one.Kind); err != nil {
			return err
		}
		streams, messages = streams+1, messages+one.State.Messages
	}
	answer := map[string]uint64{"streams": uint64(streams), "messages": messages}
	return s.Print(answer, func(p *printer.Paper) { p.Line("%s", fmt.Sprintf("%d messages in %d streams", messages, streams)) })
}
