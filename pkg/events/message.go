package events

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// Message is the wire form of a value. Package subject sets Subject. Header keys are
// case-sensitive, as in NATS.
type Message struct {
	Subject string
	Header  map[string][]string
	Data    []byte
	// Stream, Sequence and Time tell where and when the message was stored; zero before that. A
	// reader in the process that published the message may get a Time some milliseconds later than
	// the server's.
	Stream   string
	Sequence uint64
	Time     time.Time
}

// The headers of a delta. The CloudEvents attributes (binary mode) beside them let other
// consumers read our streams.
const (
	HeaderOp          = "Millrace-Op"
	HeaderUID         = "Kube-Uid"
	HeaderRV          = "Kube-Rv"
	HeaderGeneration  = "Kube-Generation"
	HeaderDeleting    = "Kube-Deleting"
	HeaderEpoch       = "Millrace-Epoch"
	HeaderSync        = "Millrace-Sync"
	HeaderForm        = "Millrace-Form"
	HeaderContentType = "Content-Type"
	HeaderManager     = "Kube-Manager"    // name, operation, subresource, RFC 3339 time; tab-separated; further values are Beside
	HeaderAuthor      = "Millrace-Author" // "proven": the first manager made the change
	HeaderAt          = "Millrace-At"
	HeaderCensus      = "Millrace-Census"
	HeaderAfter       = "Millrace-After"
	HeaderBefore      = "Millrace-Before"
	HeaderSince       = "Millrace-Since"
	HeaderSight       = "Millrace-Sight" // two RFC 3339 times, with a space between
	HeaderLeft        = "Millrace-Left"  // versions and bytes, with a space between
	HeaderWaits       = "Millrace-Waits"
	HeaderRedaction   = "Millrace-Redaction"
	HeaderTraceParent = "traceparent"
	HeaderTraceState  = "tracestate"
	HeaderTraceWrites = "Millrace-Hop"
	HeaderTraceBegan  = "Millrace-Root-Time" // milliseconds since 1970
)

// authored is the value of HeaderAuthor.
const authored = "proven"

// EncodeDelta gives the headers and body of a delta; subject.Message adds its subject.
func EncodeDelta(d Delta) Message {
	const most = 32 // headers, including those of its seal and its trace
	h, values := make(map[string][]string, most), make([]string, 0, most)
	set := func(key, value string, wanted bool) {
		if wanted {
			values = append(values, value)
			h[key] = values[len(values)-1 : len(values) : len(values)]
		}
	}
	set(HeaderOp, string(d.Op), true)
	set(HeaderRV, d.ResourceVersion, true)
	set(HeaderAt, d.At.UTC().Format(time.RFC3339Nano), true)
	set("ce-specversion", "1.0", true)
	set("ce-id", d.ID(), true)
	set("ce-source", "/millrace/watcher", true)
	set("ce-type", "io.k8s."+string(d.Kind)+"."+string(d.Op), true)
	set(HeaderContentType, d.ContentType, true)
	set("ce-subject", d.Ref.String(), d.Ref.Name != "")
	set(HeaderUID, string(d.UID), d.UID != "")
	set(HeaderGeneration, strconv.FormatInt(d.Generation, 10), d.Generation != 0)
	set(HeaderDeleting, "true", d.Deleting)
	set(HeaderEpoch, strconv.FormatUint(d.Epoch, 10), d.Epoch != 0)
	set(HeaderSync, "true", d.Sync)
	set(HeaderForm, string(d.Form), d.Form != "")
	by := d.By.header()
	set(HeaderManager, by, by != "")
	for _, m := range d.Beside {
		if beside := m.header(); beside != "" {
			h[HeaderManager] = append(h[HeaderManager], beside)
		}
	}
	set(HeaderAuthor, authored, d.Proven && by != "") // else it would refer to the first of Beside
	set(HeaderCensus, d.Census.String(), d.Census.Known)
	set(HeaderAfter, d.After.String(), d.After.Sequence != 0)
	set(HeaderBefore, strconv.FormatUint(d.Before.Sequence, 10), d.Before.Known)
	set(HeaderSince, strconv.FormatUint(d.Since, 10), d.Since != 0)
	set(HeaderSight, d.Sight.String(), d.Sight != Sight{})
	set(HeaderLeft, d.Left.String(), d.Left != Left{})
	set(HeaderWaits, strconv.FormatUint(d.Waits, 10), d.Waits != 0)
	set(HeaderRedaction, string(d.Redaction), d.Redaction != "")
	d.Trace.set(h)
	return Message{Header: h, Data: d.Body}
}

// DecodeDelta reads a delta; ref comes from the message's subject.
//
// Errors: [ErrDamaged]; or a header is missing or malformed, which only a publisher other than
// ours can cause.
func DecodeDelta(ref Ref, m Message) (Delta, error) {
	if err := Verify(m); err != nil {
		return Delta{}, err
	}
	d := Delta{
		Kind: ref.Kind, Op: Op(m.Get(HeaderOp)),
		UID: types.UID(m.Get(HeaderUID)), ResourceVersion: m.Get(HeaderRV),
		Deleting: m.Get(HeaderDeleting) == "true", Sync: m.Get(HeaderSync) == "true",
		Form: kinds.Form(m.Get(HeaderForm)), ContentType: m.Get(HeaderContentType), Body: m.Data,
		Trace: TraceOf(m.Header), Redaction: Redaction(m.Get(HeaderRedaction)),
	}
	if ref.Name != "" {
		d.Ref = ref
	}
	var err error
	number := func(key string, bits int) uint64 {
		text := m.Get(key)
		if text == "" || err != nil {
			return 0
		}
		var n uint64
		if n, err = strconv.ParseUint(text, 10, bits); err != nil {
			err = fmt.Errorf("decode delta of %v: header %s: %w", ref, key, err)
		}
		return n
	}
	d.Generation, d.Epoch = int64(number(HeaderGeneration, 63)), number(HeaderEpoch, 32)
	d.Before = Place{m.Get(HeaderBefore) != "", number(HeaderBefore, 64)}
	d.Since, d.Waits = number(HeaderSince, 64), number(HeaderWaits, 64)
	if err != nil {
		return Delta{}, err
	}
	if d.At, err = parseAt(m.Get(HeaderAt)); err != nil {
		return Delta{}, fmt.Errorf("decode delta of %v: header %s: %w", ref, HeaderAt, err)
	}
	if d.Sight, err = parseSight(m.Get(HeaderSight)); err != nil {
		return Delta{}, fmt.Errorf("decode delta of %v: header %s: %w", ref, HeaderSight, err)
	}
	d.By, d.Proven, d.Beside = parseManagers(m)
	if d.Census, err = parseCensus(m.Get(HeaderCensus)); err != nil {
		return Delta{}, fmt.Errorf("decode delta of %v: header %s: %w", ref, HeaderCensus, err)
	}
	if d.After, err = parseLink(m.Get(HeaderAfter)); err != nil {
		return Delta{}, fmt.Errorf("decode delta of %v: header %s: %w", ref, HeaderAfter, err)
	}
	if d.Left, err = parseLeft(m.Get(HeaderLeft)); err != nil {
		return Delta{}, fmt.Errorf("decode delta of %v: header %s: %w", ref, HeaderLeft, err)
	}
	if err := d.check(ref); err != nil {
		return Delta{}, err
	}
	return d, nil
}

// parseAt reads a time; it is zero for an empty text.
func parseAt(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	return parseTime(time.RFC3339Nano, text)
}

// parseTime reads a time that can be formatted again in UTC: the zone of a text may move it to a
// year outside RFC 3339.
func parseTime(layout, text string) (time.Time, error) {
	at, err := time.Parse(layout, text)
	if err == nil && !writable(at) {
		return time.Time{}, fmt.Errorf("%q is of no year from 0 to 9999", text)
	}
	return at, err
}

// writable reports whether a moment has an RFC 3339 form in UTC.
func writable(at time.Time) bool { return at.UTC().Year() >= 0 && at.UTC().Year() <= 9999 }

func (d Delta) check(ref Ref) error {
	switch d.Op {
	case Is, Gone:
		if d.Ref.Name == "" || d.UID == "" {
			return fmt.Errorf("decode delta of %v: op %q without a name or %s", ref, d.Op, HeaderUID)
		}
	case Mark, Gap:
	default:
		return fmt.Errorf("decode delta of %v: header %s is %q, not one of is, gone, mark, gap", ref, HeaderOp, d.Op)
	}
	return nil
}

// Get is the first value of a header, or "".
func (m Message) Get(key string) string {
	if v := m.Header[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// EncodeJSON gives the headers and body of a Turn, Outcome or Wake.
func EncodeJSON(value any, trace Trace) (Message, error) {
	body, err := json.Marshal(value)
	if err != nil {
		return Message{}, fmt.Errorf("encode %T: %w", value, err)
	}
	h := map[string][]string{HeaderContentType: {kinds.JSON}}
	trace.set(h)
	return Message{Header: h, Data: body}, nil
}

// DecodeJSON reads a Turn, Outcome or Wake into value.
//
// Errors: [ErrDamaged]; or the body is malformed. A body with a duplicate key, or with a key in
// another case, is an error, because two readers could understand it differently. Unknown keys
// are ignored: a newer version wrote them.
func DecodeJSON(m Message, value any) error {
	if err := Verify(m); err != nil {
		return err
	}
	if err := unmarshal(m.Data, value); err != nil {
		return fmt.Errorf("decode %T from %s message %d: %w", value, m.Stream, m.Sequence, err)
	}
	return nil
}

// TraceOf reads the trace context from headers. It leaves out what is not readable: only tracing
// depends on it.
func TraceOf(header map[string][]string) Trace {
	m := Message{Header: header}
	t := Trace{Parent: m.Get(HeaderTraceParent), State: m.Get(HeaderTraceState)}
	if t.Parent != "" {
		t.Writes, _ = strconv.Atoi(m.Get(HeaderTraceWrites))
		t.Began, _ = strconv.ParseInt(m.Get(HeaderTraceBegan), 10, 64)
	}
	return t
}

func (t Trace) set(header map[string][]string) {
	if t.Parent != "" {
		header[HeaderTraceParent] = []string{t.Parent}
	}
	if t.State != "" {
		header[HeaderTraceState] = []string{t.State}
	}
	if t.Writes != 0 {
		header[HeaderTraceWrites] = []string{strconv.Itoa(t.Writes)}
	}
	if t.Began != 0 {
		header[HeaderTraceBegan] = []string{strconv.FormatInt(t.Began, 10)}
	}
}

// HeaderCovers says which messages of a stream a notary's page covers: the sequences of the
// first and the last one. It serves to find pages; the signed statement is in the body.
const HeaderCovers = "Millrace-Covers"

// Covers is the value of [HeaderCovers].
func Covers(first, last uint64) string {
	return strconv.FormatUint(first, 10) + " " + strconv.FormatUint(last, 10)
}

// CoveredBy reads [HeaderCovers]; ok is false when the header is missing or malformed.
func CoveredBy(m Message) (first, last uint64, ok bool) {
	from, to, _ := strings.Cut(m.Get(HeaderCovers), " ")
	first, failed := strconv.ParseUint(from, 10, 64)
	last, err := strconv.ParseUint(to, 10, 64)
	return first, last, failed == nil && err == nil
}
