package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/pkg/events/subject"
)

const (
	// mostSeeds bounds the seeds of a target, and largestSeed each of them, in bytes.
	mostSeeds, largestSeed = 12, 6 << 10
	// planted is the prefix of the seeds' file names: inputs that crashed a target have other names.
	planted = "recorded-"
)

// planter makes seeds for a target from the messages of a record.
type planter struct {
	target
	// streams are the prefixes of the stream names.
	streams []string
	// shape classifies a message: one seed of each shape is enough. "" means that the message is no seed.
	shape func(m events.Message) string
	// values are the arguments of the target for a message.
	values func(m events.Message) []any
}

var planters = []planter{
	{target{"pkg/events", "FuzzDelta"}, []string{"EV_"}, shapeOfDelta, whole},
	{target{"pkg/events", "FuzzTurn"}, []string{"TURN_"}, shapeOfTurn, body},
	{target{"pkg/events", "FuzzOutcome"}, []string{"OUTCOME_"}, shapeOfOutcome, body},
	{target{"pkg/events", "FuzzWake"}, []string{"WAKE"}, shapeOfOutcome, body},
	{target{"pkg/events/notary", "FuzzPage"}, []string{"NOTARY"}, func(m events.Message) string { return m.Subject }, body},
	{target{"pkg/events/sign", "FuzzTurn"}, []string{"TURN_"}, shapeOfTurn, signed},
	{target{"pkg/events/subject", "FuzzSubject"}, []string{"EV_", "TURN_", "OUTCOME_", "WAKE"}, func(m events.Message) string {
		return fmt.Sprint(strings.Count(m.Subject, "."), strings.Split(m.Subject, ".")[0], strings.Contains(m.Subject, "%"))
	}, func(m events.Message) []any { return []any{m.Subject} }},
	{target{"services/reconcilers/cache", "FuzzFold"}, []string{"EV_"}, shapeOfDelta, whole},
	{target{"services/writer/apply", "FuzzDoor"}, []string{"TURN_"}, shapeOfTurn, func(m events.Message) []any { return []any{m.Data, []byte("\x00\x04\x02")} }},
	{target{"services/writer/plan", "FuzzTurn"}, []string{"TURN_"}, shapeOfTurn, func(m events.Message) []any { return []any{m.Data, uint16(200), false} }},
}

func body(m events.Message) []any { return []any{m.Data} }

// whole is a message as a seed: its subject, its headers as JSON, and its body.
func whole(m events.Message) []any {
	header, _ := json.Marshal(m.Header) // texts: cannot fail
	return []any{m.Subject, header, m.Data}
}

// signed returns the parts of a message that its signature covers, and the signature.
func signed(m events.Message) []any {
	const place = "Nats-Expected-Last-Subject-Sequence"
	return []any{m.Subject, m.Data, m.Get(place), m.Get(sign.HeaderAt), true, m.Get(sign.HeaderSignature), m.Sequence}
}

func shapeOfDelta(m events.Message) string {
	return strings.Join([]string{m.Stream, m.Get(events.HeaderOp)}, " ")
}

func shapeOfTurn(m events.Message) string {
	var t events.Turn
	if events.DecodeJSON(m, &t) != nil || len(t.Commands) == 0 {
		return ""
	}
	what := []string{string(t.Lane)}
	for _, c := range t.Commands {
		what = append(what, string(c.Verb)+" "+string(c.Kind)+"/"+c.Subresource)
	}
	return strings.Join(slices.Compact(what), ", ")
}

func shapeOfOutcome(m events.Message) string {
	var o events.Outcome
	if json.Unmarshal(m.Data, &o) != nil {
		return ""
	}
	what := []string{string(o.Lane)}
	for _, r := range o.Results {
		what = append(what, string(r.Status)+" "+r.Reason)
	}
	return strings.Join(slices.Compact(what), ", ")
}

// plant writes seeds from a record. For each target it takes the smallest message of each shape, of as many
// shapes as allowed, and replaces the seeds that it wrote before.
//
// Errors: the file is no record, or a directory cannot be written.
func plant(ctx context.Context, root, record string) error {
	file, err := archive.Open(record)
	if err != nil {
		return err
	}
	defer file.Close()
	all := map[target]map[string][]any{}
	w := &cluster{objects: map[events.Ref]json.RawMessage{}}
	for _, stream := range file.Streams() {
		err := file.Read(ctx, bus.Passage{Stream: stream.Name}, func(batch []events.Message) error {
			for _, m := range batch {
				w.take(stream.Name, m)
				for _, p := range planters {
					p.take(all, stream.Name, m)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	all[target{"services/reconcilers/controllers", "FuzzDecide"}] = w.seeds()
	total := 0
	for _, t := range slices.SortedFunc(maps.Keys(all), func(a, b target) int { return strings.Compare(a.String(), b.String()) }) {
		found := all[t]
		n, err := write(filepath.Join(root, filepath.FromSlash(t.dir), "testdata", "fuzz", t.name), found)
		if err != nil {
			return err
		}
		fmt.Printf("%-58s %3d seeds\n", t, n)
		total += n
	}
	fmt.Printf("%d seeds\n", total)
	return nil
}

// take keeps a message if it is the smallest of its shape.
func (p planter) take(all map[target]map[string][]any, stream string, m events.Message) {
	if !slices.ContainsFunc(p.streams, func(prefix string) bool { return strings.HasPrefix(stream, prefix) }) {
		return
	}
	m.Stream = stream
	shape := p.shape(m)
	if shape == "" {
		return
	}
	if all[p.target] == nil {
		all[p.target] = map[string][]any{}
	}
	values := p.values(m)
	if before, known := all[p.target][shape]; !known || len(corpus(values)) < len(corpus(before)) {
		all[p.target][shape] = values
	}
}

// write writes the smallest seeds to a directory, under names that derive from their content.
func write(dir string, found map[string][]any) (n int, err error) {
	texts := make([][]byte, 0, len(found))
	for _, values := range found {
		if text := corpus(values); len(text) <= largestSeed {
			texts = append(texts, text)
		}
	}
	slices.SortFunc(texts, func(a, b []byte) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return bytes.Compare(a, b)
	})
	old, _ := filepath.Glob(filepath.Join(dir, planted+"*"))
	for _, file := range old {
		if err := os.Remove(file); err != nil {
			return 0, fmt.Errorf("remove an old seed: %w", err)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, fmt.Errorf("write seeds: %w", err)
	}
	for _, text := range texts[:min(len(texts), mostSeeds)] {
		sum := fnv.New64a()
		sum.Write(text)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s%016x", planted, sum.Sum64())), text, 0o644); err != nil {
			return n, fmt.Errorf("write a seed: %w", err)
		}
		n++
	}
	return n, nil
}

// corpus is a seed in the go command's format.
func corpus(values []any) []byte {
	var b bytes.Buffer
	b.WriteString("go test fuzz v1\n")
	for _, value := range values {
		switch v := value.(type) {
		case []byte:
			b.WriteString("[]byte(" + strconv.Quote(string(v)) + ")\n")
		case string:
			b.WriteString("string(" + strconv.Quote(v) + ")\n")
		default:
			fmt.Fprintf(&b, "%T(%v)\n", v, v)
		}
	}
	return b.Bytes()
}

// cluster has the state, at the end of a record, of the objects that controllers read in full.
type cluster struct {
	objects map[events.Ref]json.RawMessage
	latest  time.Time
}

// take applies a delta.
func (w *cluster) take(stream string, m events.Message) {
	name, logged := strings.CutPrefix(stream, "EV_")
	kind, known := kinds.Lookup(kinds.ParseToken(name))
	if !logged || !known {
		return
	}
	ref, err := subject.ParseDelta(m.Subject)
	if err != nil {
		return
	}
	d, err := events.DecodeDelta(ref, m)
	if err != nil || d.Op != events.Is {
		return
	}
	if d.Form != "" {
		kind.Form = d.Form
	}
	obj, err := kinds.Decode(kind, d.ContentType, d.Body)
	if err != nil {
		return
	}
	obj.SetManagedFields(nil)
	if m.Time.After(w.latest) {
		w.latest = m.Time
	}
	if text, err := json.Marshal(obj); err == nil {
		w.objects[d.Ref] = text
	}
}

// seeds are the objects of each namespace, and the cluster-scoped objects: the smallest few of each kind.
func (w *cluster) seeds() map[string][]any {
	type thing struct {
		Kind   kinds.Name      `json:"kind"`
		Object json.RawMessage `json:"object"`
	}
	const each = 2
	refs := make([]events.Ref, 0, len(w.objects))
	for ref := range w.objects {
		refs = append(refs, ref)
	}
	slices.SortFunc(refs, func(a, b events.Ref) int {
		if n := len(w.objects[a]) - len(w.objects[b]); n != 0 {
			return n
		}
		return strings.Compare(a.String(), b.String())
	})
	count, lists := map[string]int{}, map[string][]thing{}
	for _, ref := range refs {
		if at := ref.Namespace + " " + string(ref.Kind); count[at] < each {
			count[at]++
			lists[ref.Namespace] = append(lists[ref.Namespace], thing{ref.Kind, w.objects[ref]})
		}
	}
	found := map[string][]any{}
	for namespace, list := range lists {
		for n := 0; len(list) > 0; n++ {
			size := 0
			end := slices.IndexFunc(list, func(t thing) bool { size += len(t.Object); return size > largestSeed/2 })
			if end < 0 {
				end = len(list)
			}
			end = max(end, 1)
			text, _ := json.Marshal(list[:end]) // was JSON before: cannot fail
			found[namespace+strconv.Itoa(n)] = []any{text, []byte{}, w.latest.Unix()}
			list = list[end:]
		}
	}
	return found
}
