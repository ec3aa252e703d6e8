package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/reader/auditlog"
	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/session"
	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/notary"
	"github.com/millrace/millrace/pkg/events/subject"
)

// ErrFound: verify has found damage in the record.
var ErrFound = errors.New("the record is not whole")

// errInterrupted: verify was stopped before it could tell whether the record is whole.
var errInterrupted = errors.New("interrupted before the whole record was read")

// verifying are the flags of verify.
type verifying struct {
	keys    []string
	audit   string
	witness string
	every   bool
	partial bool
	signed  signatures
}

func newVerify() *cobra.Command {
	v := verifying{}
	return session.Program{
		Use: "verify", Short: "Check that the record is complete and has not been changed",
		Long: `Reads the whole record and checks its checksums, links, versions and numbers of objects,
which finds accidents. With --key it also checks the signatures of the notary: every
message that was changed, removed, inserted or reordered is named with its stream and
sequence, and so is every message that is not signed yet. With --record=FILE this works
offline. --witness keeps the newest checkpoints in a file, so that the next run finds a
record that was rolled back. --audit-log compares the writes in the API server's audit log
with the recorded outcomes. --turn-keys-file and --outcome-keys-file verify the signature
of each turn and outcome. The exit code is 0 without findings, 2 with findings, and 1 if
the record could not be read or the command line is wrong.`,
		Example: "  millrace verify --key=notary.pub\n  millrace verify --key=notary.pub --record=incident.millrace\n" +
			"  millrace verify --key=notary.pub --witness=checkpoints.json --audit-log=/var/log/kubernetes/audit.log",
		Args: cobra.NoArgs, Lasting: true,
		Complete: func(*session.Session, []string, string) []string { return nil },
		Flags: func(f *pflag.FlagSet) {
			f.StringSliceVar(&v.keys, "key", v.keys, "`files` with public keys of notaries, and when each is valid")
			f.StringVar(&v.audit, "audit-log", v.audit, "`file` with the API server's audit log")
			f.BoolVar(&v.every, "all", v.every, "show each stream")
			f.BoolVar(&v.partial, "partial", v.partial, "accept that whole signed streams are missing, as in a file that an older version has cut without a note")
			v.signed.add(f)
			f.StringVar(&v.witness, "witness", v.witness, "`file` that keeps the newest checkpoints from one run to the next")
		},
		Run: func(ctx context.Context, s *session.Session, _ []string) error {
			err := v.run(ctx, s)
			if errors.Is(err, context.Canceled) { // Main counts Canceled as success
				return errInterrupted
			}
			return err
		},
	}.Command()
}

func (v *verifying) run(ctx context.Context, s *session.Session) error {
	trust, err := v.trust(s)
	if err != nil {
		return err
	}
	r, err := notary.Verify(ctx, s.Bus, trust)
	if err != nil {
		return err
	}
	report := verified{Report: r, Cut: cutOf(s.Bus)}
	if v.audit != "" {
		about, found, err := auditlog.Compare(ctx, s.Bus, v.audit)
		if err != nil {
			return err
		}
		report.Audit, r.Findings = about, append(r.Findings, found...)
	}
	signed, found, err := v.signed.check(ctx, s.Bus)
	if err != nil {
		return err
	}
	report.Signatures, r.Findings = signed, append(r.Findings, found...)
	if err := s.Print(report, func(p *printer.Paper) { drawReport(p, report, v.every) }); err != nil {
		return err
	}
	switch n := len(r.Findings); n {
	case 0:
		return v.remember(r)
	case 1:
		return fmt.Errorf("%w: 1 finding", ErrFound)
	default:
		return fmt.Errorf("%w: %d findings", ErrFound, n)
	}
}

// verified is the answer to verify: the report, the comparison with an audit log, and the
// signatures.
type verified struct {
	*notary.Report
	// Cut is how an exported file was restricted on purpose; empty: not at all.
	Cut        string            `json:"cut,omitempty"`
	Audit      *auditlog.Audited `json:"auditLog,omitempty"`
	Signatures []Signatures      `json:"signatures,omitempty"`
}

// cutOf is how an exported file was restricted on purpose, in the words of export's flags.
func cutOf(b bus.Archive) string {
	f, is := b.(*archive.File)
	if !is {
		return ""
	}
	about, words := f.About(), []string(nil)
	if !about.Since.IsZero() {
		words = append(words, "since="+about.Since.UTC().Format(time.RFC3339))
	}
	if !about.Until.IsZero() {
		words = append(words, "until="+about.Until.UTC().Format(time.RFC3339))
	}
	return strings.Join(append(words, about.Partial...), " ")
}

// trust reads the keys and checkpoints to verify the record against.
func (v *verifying) trust(s *session.Session) (t notary.Trust, err error) {
	keys := &notary.Keys{}
	for _, name := range v.keys {
		text, err := os.ReadFile(name)
		if err != nil {
			return t, fmt.Errorf("read --key: %w", err)
		}
		if err := keys.Read(string(text)); err != nil {
			return t, fmt.Errorf("read --key: %s: %w", name, err)
		}
	}
	if !keys.Empty() {
		t.Known = keys
	}
	t.Now, t.Partial = time.Now(), v.partial
	if f, is := s.Bus.(*archive.File); is {
		t.File, t.Partial = true, t.Partial || len(f.About().Partial) > 0
		if t.Until = !f.About().Until.IsZero(); f.About().Exported.Before(t.Now) {
			t.Now = f.About().Exported
		}
	}
	if v.witness == "" {
		return t, nil
	}
	if t.Known == nil {
		return t, errors.New("--witness without --key: only a checkpoint whose signature was checked is worth remembering")
	}
	text, err := os.ReadFile(v.witness)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &t.Witness)
	}
	if err != nil {
		return t, fmt.Errorf("read --witness: %w", err)
	}
	return t, nil
}

// remember writes the newest checkpoints to --witness, and keeps those of streams that are not
// in this record.
func (v *verifying) remember(report *notary.Report) error {
	if v.witness == "" {
		return nil
	}
	seen := map[string]notary.Checkpoint{}
	if text, err := os.ReadFile(v.witness); err == nil {
		if err := json.Unmarshal(text, &seen); err != nil {
			return fmt.Errorf("read --witness: %w", err)
		}
	}
	maps.Copy(seen, report.Heads())
	text, err := json.MarshalIndent(seen, "", "  ")
	if err == nil {
		err = os.WriteFile(v.witness+".part", append(text, '\n'), 0o600)
	}
	if err == nil {
		err = os.Rename(v.witness+".part", v.witness)
	}
	if err != nil {
		return fmt.Errorf("write --witness: %w", err)
	}
	return nil
}

// sorts are the contents of streams, by the prefix of their names.
var sorts = []struct{ name, prefix string }{
	{"deltas", subject.LogStream("")}, {"turns", subject.TurnStream("")}, {"outcomes", subject.OutcomeStream("")},
	{"shadows", subject.ShadowStream("")},
}

// sums adds up the streams of each sort.
func sums(streams []notary.Standing) (out []notary.Standing, counts []int) {
	for _, sort := range sorts {
		sum, count := notary.Standing{Stream: sort.name}, 0
		for _, s := range streams {
			if !strings.HasPrefix(s.Stream, sort.prefix) {
				continue
			}
			count++
			sum.Messages, sum.Proven, sum.Unproven = sum.Messages+s.Messages, sum.Proven+s.Proven, sum.Unproven+s.Unproven
			sum.Expired, sum.Gaps, sum.Left = sum.Expired+s.Expired, sum.Gaps+s.Gaps, sum.Left+s.Left
			if s.Head == nil {
				continue
			}
			if sum.Head == nil || s.Since.Before(sum.Since) {
				sum.Since = s.Since
			}
			if sum.Head = s.Head; s.Until.After(sum.Until) {
				sum.Until = s.Until
			}
		}
		if count == 0 && sort.prefix == subject.ShadowStream("") {
			continue // most clusters have no shadows
		}
		out, counts = append(out, sum), append(counts, count)
	}
	return out, counts
}

func drawReport(p *printer.Paper, r verified, every bool) {
	all, counts := sums(r.Streams)
	head := []string{"KIND", "STREAMS", "MESSAGES", "PROVEN", "NOT SIGNED", "EXPIRED", "GAPS", "FIRST SIGNED", "LAST SIGNED"}
	shown := all
	if every {
		shown, head = r.Streams, slices.Delete(slices.Clone(head), 1, 2)
		head[0] = "STREAM"
	}
	rows := make([][]printer.Cell, len(shown))
	for i, s := range shown {
		since, until := "-", "-"
		if s.Head != nil {
			since, until = printer.Time(s.Since), printer.Time(s.Until)
		}
		row := printer.Cells(s.Stream, fmt.Sprint(s.Messages), fmt.Sprint(s.Proven), fmt.Sprint(s.Unproven), fmt.Sprint(s.Expired), fmt.Sprint(s.Gaps), since, until)
		if s.Unproven > 0 && r.Signed {
			row[3].Colour = printer.Yellow
		}
		if !every {
			row = slices.Insert(row, 1, printer.Cell{Text: fmt.Sprint(counts[i])})
		}
		rows[i] = row
	}
	p.Table(head, rows)
	for _, s := range shown {
		if s.Left > 0 {
			p.Line("%s", p.In(printer.Dim, fmt.Sprintf("%s: %d versions were left out, since their objects were written faster than is recorded", s.Stream, s.Left)))
		}
	}
	if a := r.Audit; a != nil {
		p.Line("the audit log goes from %s to %s: %d writes of ours in it and %d outcomes on record were held against each other", printer.Time(a.From), printer.Time(a.To), a.Writes, a.Outcomes)
		if a.Open > 0 {
			p.Line("%d more could not be: they are too near an end of one of the two", a.Open)
		}
	}
	if r.Cut != "" {
		p.Line("the file says that it is a part of the record: %s", r.Cut)
	}
	if n := len(r.LeftOut); n > 0 {
		p.Line("%d streams that were signed are not in it: %s", n, strings.Join(r.LeftOut, ", "))
	}
	for _, f := range r.Remarks {
		p.Line("%s", p.In(printer.Dim, f.String()))
	}
	drawSignatures(p, r.Signatures)
	for _, f := range r.Findings {
		p.Line("%s", p.In(printer.Red, f.String()))
	}
	if len(r.Findings) == 0 {
		p.Line("%s", verdict(p, r.Report, all))
	}
}

// withNotary explains how to make a record verifiable.
const withNotary = `a notary signs the record from when it is started; docs/verify.md has the details:
  millrace notary keys NAME notary.key       makes the keys, once
  millrace run --notary-key=notary.key       signs what is stored; or millrace notary beside the services
  millrace verify --key=notary.key.pub       holds the record against what was signed`

// verdict is the result of a verification without findings, in one line.
func verdict(p *printer.Paper, r *notary.Report, all []notary.Standing) string {
	var messages, proven, unproven int
	for _, s := range all {
		messages, proven, unproven = messages+s.Messages, proven+s.Proven, unproven+s.Unproven
	}
	switch {
	case !r.Signed:
		return p.In(printer.Yellow, fmt.Sprintf("nothing is wrong with %d messages as far as they tell themselves; only a notary's signatures prove that they were not forged", messages)) + "\n" + p.In(printer.Dim, withNotary)
	case unproven > 0:
		return p.In(printer.Green, fmt.Sprintf("%d messages are exactly those that were signed; %d are not signed", proven, unproven))
	default:
		return p.In(printer.Green, fmt.Sprintf("%d messages are exactly those that were signed", proven))
	}
}
