package audit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/session"
	"github.com/millrace/millrace/pkg/events/archive"
)

// exported is the answer to export.
type exported struct {
	File    string           `json:"file"`
	Bytes   int64            `json:"bytes"`
	Streams []archive.Stream `json:"streams"`
}

// exporting are the flags of export.
type exporting struct {
	since, until string
	kinds        []string
	controllers  []string
	overwrite    bool
}

func newExport(version string) *cobra.Command {
	x := exporting{}
	return session.Program{
		Use: "export FILE", Short: "Write the record, or a part of it, to one file",
		Long: `Writes the record to one file, which every command can read with --record=FILE, without a
cluster or a bus. By default that is everything that is kept. A part begins with the state
at its beginning, so that commands give the same answers as on the bus for every moment
within it. The file is compressed with zstd; "zstd -dc FILE" shows it.`,
		Example: "  millrace export incident.millrace --since=1h\n  millrace why pod/web-x2x7p --record=incident.millrace\n" +
			"  millrace export small.millrace --record=incident.millrace --kinds=pods,rs --since=15:04 --until=15:10",
		Args: cobra.ExactArgs(1), Lasting: true,
		Complete: func(*session.Session, []string, string) []string { return nil },
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&x.since, "since", x.since, "`moment` of the beginning: a duration ago, or a time (default: everything that is kept)")
			f.StringVar(&x.until, "until", x.until, "`moment` of the end (default: now)")
			f.StringSliceVar(&x.kinds, "kinds", x.kinds, "`kinds` whose deltas are exported (default: all)")
			f.StringSliceVar(&x.controllers, "controllers", x.controllers, "`controllers` whose turns and outcomes are exported (default: all)")
			f.BoolVar(&x.overwrite, "overwrite", x.overwrite, "overwrite an existing file")
		},
		Run: func(ctx context.Context, s *session.Session, args []string) error {
			selected, err := x.selection(ctx, s)
			if err != nil {
				return err
			}
			selected.Program = version
			return export(ctx, s, args[0], selected, x.overwrite)
		},
	}.Command()
}

func (x *exporting) selection(ctx context.Context, s *session.Session) (out archive.Selection, err error) {
	if out.Since, err = s.Bound("--since", x.since); err != nil {
		return out, err
	}
	if out.Until, err = s.Bound("--until", x.until); err != nil {
		return out, err
	}
	if !out.Until.IsZero() && out.Until.Before(out.Since) {
		return out, fmt.Errorf("--until=%s is before --since=%s: nothing lies between", x.until, x.since)
	}
	for _, word := range x.kinds {
		kind, err := s.Kind(ctx, word)
		if err != nil {
			return out, fmt.Errorf("read --kinds: %w", err)
		}
		out.Kinds = append(out.Kinds, kind.Name)
	}
	shadows, err := s.Bus.Shadows(ctx)
	if err != nil {
		return out, fmt.Errorf("look which shadows are on record: %w", err)
	}
	out.Controllers, err = s.Controllers(ctx, x.controllers, shadows...)
	return out, err
}

// export writes to a temporary name first, so that a file with the final name is complete.
func export(ctx context.Context, s *session.Session, name string, selected archive.Selection, overwrite bool) (err error) {
	if _, err := os.Stat(name); !overwrite && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s exists: name another file, or say --overwrite", name)
	}
	out, err := os.OpenFile(name+".part", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) // it is as confidential as the cluster
	if err != nil {
		return fmt.Errorf("write the file: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(out.Name()))
		}
	}()
	buffer := bufio.NewWriterSize(out, 1<<20)
	streams, err := archive.Export(ctx, s.Bus, buffer, selected)
	if err = errors.Join(err, buffer.Flush(), out.Sync(), out.Close()); err != nil {
		return err
	}
	info, err := os.Stat(out.Name())
	if err != nil {
		return fmt.Errorf("look at the file: %w", err)
	}
	if err := os.Rename(out.Name(), name); err != nil {
		return fmt.Errorf("name the file: %w", err)
	}
	return s.Print(exported{name, info.Size(), streams}, func(p *printer.Paper) { drawExported(p, name, info.Size(), streams) })
}

func drawExported(p *printer.Paper, name string, size int64, streams []archive.Stream) {
	var messages uint64
	rows := make([][]printer.Cell, len(streams))
	for i, stream := range streams {
		messages += stream.State.Messages
		begins := "-"
		if !stream.State.Begins.IsZero() {
			begins = printer.Time(stream.State.Begins)
		}
		rows[i] = printer.Cells(stream.Name, fmt.Sprint(stream.State.Messages), fmt.Sprint(stream.State.First), fmt.Sprint(stream.State.Last), begins)
	}
	p.Table([]string{"STREAM", "MESSAGES", "FIRST", "LAST", "BEGINS"}, rows)
	p.Line("%d messages in %s, %.1f MB; read it with --record=%s", messages, name, float64(size)/1e6, name)
}
