package notary_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/notary"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

var tamperings = flag.Int("tamper.n", 500, "how many tamperings TestEveryTamperingIsFound makes")

// forger is a user with all permissions on the bus, but without the key.
type forger struct {
	testing.TB
	*rand.Rand
	*file
	key note.Signer // the forger's own key
}

// trick changes a file, and describes the change; "" if there was nothing to change.
type trick func(f *forger) string

var tricks = []trick{
	(*forger).changeBody, (*forger).changeBody, (*forger).changeHeader, (*forger).changeSubject, (*forger).changeTime, (*forger).changeSequence,
	(*forger).remove, (*forger).removeFront, (*forger).removeEnd, (*forger).removeStream, (*forger).exchange, (*forger).insert, (*forger).repeat,
	(*forger).swapStreams, (*forger).swapAcross, (*forger).changePage, (*forger).removePage, (*forger).removePages, (*forger).removeWithPage, (*forger).forgePage,
	(*forger).oldPage, (*forger).swapPages, (*forger).pageOfAnother,
	(*forger).leaveOutStream, (*forger).leaveOutEnd, (*forger).changeList, (*forger).removeList,
}

// TestEveryTamperingIsFound: every reader with the public key detects every change, removal,
// insertion or reordering in a record, whether or not the forger has corrected the sums.
func TestEveryTamperingIsFound(t *testing.T) {
	forged, _ := key(t, 2)
	const worlds = 10
	done := map[string]int{}
	for seed := range uint64(worlds) {
		live(t, seed, memory.Options{LogAge: []time.Duration{0, 10 * time.Minute}[seed%2]}, func(w *world) {
			if seed%3 == 0 {
				w.notary()
			}
			w.steps(120)
			time.Sleep(3 * time.Minute)
			w.steps(60)
			time.Sleep(11 * time.Minute) // long enough for one more list of the streams
			w.steps(60)
			time.Sleep(6 * time.Minute) // everything is signed by then
			was := w.export(archive.Selection{})
			whole(t, was.verify(t, w.known), true)
			for n := 0; n < *tamperings/worlds; {
				f := &forger{w.TB, w.Rand, was.copy(), forged}
				at := w.IntN(len(tricks))
				what := tricks[at](f)
				if what == "" || reflect.DeepEqual(f.file, was) {
					continue
				}
				n++
				done[fmt.Sprint(at)]++
				if r := f.verify(t, w.known); len(r.Findings) == 0 {
					t.Errorf("world %d: not found: %s", seed, what)
				}
			}
		})
	}
	if len(done) != len(tricks) && *tamperings >= 500 {
		t.Errorf("of %d tricks only %d were played, want all: %v", len(tricks), len(done), done)
	}
}

func (f *file) copy() *file {
	out := &file{about: f.about, streams: slices.Clone(f.streams), messages: map[string][]events.Message{}}
	out.about.Streams = slices.Clone(f.about.Streams)
	for name, messages := range f.messages {
		out.messages[name] = slices.Clone(messages)
	}
	return out
}

// any chooses a message that a page covers.
func (f *forger) any() (in []events.Message, at int) {
	for {
		in = f.messages[f.streams[f.IntN(len(f.streams))].Name]
		if len(in) > 0 && subject.Notarized(in[0].Stream) {
			return in, f.IntN(len(in))
		}
	}
}

// put replaces a message by a changed one, and corrects its sums if the forger is careful.
func (f *forger) put(in []events.Message, at int, m events.Message) {
	if f.IntN(2) == 0 {
		m = sealedAnew(m)
	}
	in[at] = m
}

func sealedAnew(m events.Message) events.Message {
	m.Header = maps.Clone(m.Header)
	delete(m.Header, events.HeaderSum)
	delete(m.Header, events.HeaderBodySum)
	return events.Seal(m)
}

// otherByte changes one byte of a text.
func (f *forger) otherByte(text []byte, printable bool) []byte {
	text = slices.Clone(text)
	at := f.IntN(len(text))
	for was := text[at]; text[at] == was; {
		text[at] = byte(f.IntN(256))
		if printable {
			text[at] = "abcdefghijklmnopqrstuvwxyz0123456789"[f.IntN(36)]
		}
	}
	return text
}

func (f *forger) changeBody() string {
	in, at := f.any()
	m := in[at]
	switch n := f.IntN(3); {
	case len(m.Data) == 0:
		m.Data = []byte("{}")
	case n == 0:
		m.Data = m.Data[:f.IntN(len(m.Data))]
	default:
		m.Data = f.otherByte(m.Data, false)
	}
	f.put(in, at, m)
	return fmt.Sprintf("the body of %s %d is another", m.Stream, m.Sequence)
}

func (f *forger) changeHeader() string {
	in, at := f.any()
	m := in[at]
	m.Header = maps.Clone(m.Header)
	keys := slices.Sorted(maps.Keys(m.Header))
	key := keys[f.IntN(len(keys))]
	switch value := m.Header[key][0]; f.IntN(4) {
	case 0:
		delete(m.Header, key)
	case 1:
		m.Header["Another"] = []string{"value"}
	case 2:
		delete(m.Header, key)
		m.Header[string(f.otherByte([]byte(key), true))] = []string{value}
	default:
		if value == "" {
			return ""
		}
		m.Header[key] = []string{string(f.otherByte([]byte(value), true))}
	}
	f.put(in, at, m)
	return fmt.Sprintf("the header %s of %s %d is another", key, m.Stream, m.Sequence)
}

func (f *forger) changeSubject() string {
	in, at := f.any()
	m := in[at]
	m.Subject = string(f.otherByte([]byte(m.Subject), true))
	f.put(in, at, m)
	return fmt.Sprintf("the subject of %s %d is another", m.Stream, m.Sequence)
}

func (f *forger) changeTime() string {
	in, at := f.any()
	m := in[at]
	m.Time = m.Time.Add([]time.Duration{1, -1, time.Second, -time.Hour, 1 << 40}[f.IntN(5)])
	f.put(in, at, m)
	return fmt.Sprintf("the time of %s %d is another", m.Stream, m.Sequence)
}

// changeSequence shifts all messages from one on.
func (f *forger) changeSequence() string {
	in, at := f.any()
	for i := at; i < len(in); i++ {
		in[i].Sequence++
	}
	f.state(in[0].Stream).Last++
	return fmt.Sprintf("%s is moved from %d on", in[at].Stream, in[at].Sequence)
}

// state is the state of a stream of the file; First and Messages are recomputed when it is
// written.
func (f *forger) state(name string) *bus.State {
	at := slices.IndexFunc(f.streams, func(s archive.Stream) bool { return s.Name == name })
	return &f.streams[at].State
}

// due reports whether a message is about to expire: its removal could not be detected.
func (f *forger) due(m events.Message) bool {
	soon, age := f.about.Exported.Add(10*time.Second), f.state(m.Stream).Keeps.Age
	life, _ := time.ParseDuration(m.Get("Nats-TTL"))
	return age > 0 && m.Time.Add(age).Before(soon) || life > 0 && m.Time.Add(life).Before(soon)
}

func (f *forger) remove() string {
	in, at := f.any()
	m := in[at]
	if f.due(m) {
		return ""
	}
	f.messages[m.Stream] = slices.Delete(in, at, at+1)
	return fmt.Sprintf("%s %d is removed", m.Stream, m.Sequence)
}

func (f *forger) removeFront() string {
	in, at := f.any()
	m := in[at]
	if f.due(m) {
		return ""
	}
	f.messages[m.Stream] = in[at+1:]
	return fmt.Sprintf("the front of %s is removed up to %d", m.Stream, m.Sequence)
}

func (f *forger) removeEnd() string {
	in, at := f.any()
	m := in[at]
	if f.due(in[len(in)-1]) {
		return ""
	}
	f.messages[m.Stream] = in[:at]
	if f.IntN(2) == 0 {
		f.state(m.Stream).Last = m.Sequence - 1
	}
	return fmt.Sprintf("the end of %s is removed from %d on", m.Stream, m.Sequence)
}

func (f *forger) removeStream() string {
	in, _ := f.any()
	name := in[0].Stream
	f.streams = slices.DeleteFunc(f.streams, func(s archive.Stream) bool { return s.Name == name })
	f.about.Streams = slices.DeleteFunc(f.about.Streams, func(s string) bool { return s == name })
	delete(f.messages, name)
	return name + " is removed"
}

// exchange swaps two messages of a stream.
func (f *forger) exchange() string {
	in, a := f.any()
	b := f.IntN(len(in))
	one, other := in[a], in[b]
	in[a], in[b] = other, one
	in[a].Sequence, in[b].Sequence = one.Sequence, other.Sequence
	if f.IntN(2) == 0 {
		in[a].Time, in[b].Time = one.Time, other.Time
	}
	return fmt.Sprintf("%s %d and %d have changed places", one.Stream, one.Sequence, other.Sequence)
}

// insert adds a message at a free sequence.
func (f *forger) insert() string {
	in, at := f.any()
	free := in[at].Sequence + 1
	if at+1 == len(in) || in[at+1].Sequence == free {
		if free = in[0].Sequence - 1; free == 0 {
			return ""
		}
		at = -1
	}
	m := in[max(at, 0)]
	m.Sequence = free
	m.Data = append(slices.Clone(m.Data), ' ')
	f.messages[m.Stream] = slices.Insert(in, at+1, sealedAnew(m))
	return fmt.Sprintf("%s %d is inserted", m.Stream, m.Sequence)
}

// repeat duplicates a message, and shifts the later ones.
func (f *forger) repeat() string {
	in, at := f.any()
	in = slices.Insert(in, at, in[at])
	for i := at + 1; i < len(in); i++ {
		in[i].Sequence++
	}
	f.messages[in[at].Stream] = in
	f.state(in[at].Stream).Last++
	return fmt.Sprintf("%s %d is there twice", in[at].Stream, in[at].Sequence)
}

// swapStreams swaps the content of two streams.
func (f *forger) swapStreams() string {
	one, _ := f.any()
	other, _ := f.any()
	a, b := one[0].Stream, other[0].Stream
	f.messages[a], f.messages[b] = other, one
	sa, sb := f.state(a), f.state(b)
	sa.Last, sb.Last = max(sa.Last, sb.Last), max(sa.Last, sb.Last)
	return a + " and " + b + " are swapped"
}

// swapAcross replaces a message by one of another stream.
func (f *forger) swapAcross() string {
	from, i := f.any()
	in, at := f.any()
	m := from[i]
	m.Stream, m.Sequence = in[at].Stream, in[at].Sequence
	in[at] = m
	return fmt.Sprintf("%s %d is in the place of %s %d", from[i].Stream, from[i].Sequence, m.Stream, m.Sequence)
}

// page chooses a page about messages that still exist.
func (f *forger) page() (at int, p *notary.Page) {
	pages := f.pages()
	for {
		at = f.IntN(len(pages))
		if pages[at].Subject == listSubject {
			continue
		}
		_, verifier := key(f, 1)
		p, err := notary.Open(pages[at].Data, note.VerifierList(verifier))
		if err != nil {
			f.Fatal(err)
		}
		if there := f.messages[p.Stream]; len(there) > 0 && len(p.Entries) > 0 && p.Last >= there[0].Sequence {
			return at, p
		}
	}
}

func (f *forger) changePage() string {
	at, _ := f.page()
	m := f.pages()[at]
	m.Data = f.otherByte(m.Data, false)
	f.put(f.pages(), at, m)
	return fmt.Sprintf("page %d is another", m.Sequence)
}

func (f *forger) removePage() string {
	at, p := f.page()
	f.messages[subject.NotaryStream] = slices.Delete(f.pages(), at, at+1)
	return fmt.Sprintf("page %d about %s %d to %d is removed", at, p.Stream, p.First, p.Last)
}

// removePages removes all pages about a stream from one on, or all of them.
func (f *forger) removePages() string {
	at, p := f.page()
	all := f.IntN(4) == 0
	f.messages[subject.NotaryStream] = slices.DeleteFunc(f.pages(), func(m events.Message) bool {
		return all || m.Subject == subject.Notary(p.Stream) && m.Sequence >= f.pages()[at].Sequence
	})
	return fmt.Sprintf("all pages about %s are removed from message %d on (all: %v)", p.Stream, p.First, all)
}

// removeWithPage removes a page that others continue, and all messages that it covers.
func (f *forger) removeWithPage() string {
	at, p := f.page()
	same := func(m events.Message) bool { return m.Subject == subject.Notary(p.Stream) }
	if !slices.ContainsFunc(f.pages()[:at], same) || !slices.ContainsFunc(f.pages()[at+1:], same) {
		return ""
	}
	f.messages[subject.NotaryStream] = slices.Delete(f.pages(), at, at+1)
	f.messages[p.Stream] = slices.DeleteFunc(f.messages[p.Stream], func(m events.Message) bool {
		return m.Sequence >= p.First && m.Sequence <= p.Last
	})
	return fmt.Sprintf("page %d about %s and its messages %d to %d are removed", at, p.Stream, p.First, p.Last)
}

// forgePage signs a page about other messages with the forger's key.
func (f *forger) forgePage() string {
	at, p := f.page()
	in := f.messages[p.Stream]
	i := slices.IndexFunc(in, func(m events.Message) bool { return m.Sequence >= p.First })
	m := in[i]
	m.Data = append(slices.Clone(m.Data), ' ')
	in[i] = sealedAnew(m)
	for e := range p.Entries {
		if p.Entries[e].Sequence == m.Sequence {
			p.Entries[e].Leaf = notary.Leaf(in[i])
		}
	}
	t, err := notary.Continue(p.Before, p.Edge)
	for _, e := range p.Entries {
		err = errors.Join(err, t.Add(e.Leaf))
	}
	root, failed := t.Root()
	p.Root = root
	stored, unsigned := p.Sign(f.key)
	if err = errors.Join(err, failed, unsigned); err != nil {
		f.Fatal(err)
	}
	page := f.pages()[at]
	page.Data = stored
	f.pages()[at] = sealedAnew(page)
	return fmt.Sprintf("%s %d is another, and page %d is signed with another key", m.Stream, m.Sequence, page.Sequence)
}

// oldPage stores an old page again, at the end.
func (f *forger) oldPage() string {
	at, p := f.page()
	state := f.state(subject.NotaryStream)
	state.Last++
	again := f.pages()[at]
	again.Sequence = state.Last
	f.messages[subject.NotaryStream] = append(f.pages(), again)
	return fmt.Sprintf("page %d about %s is stored once more", at, p.Stream)
}

func (f *forger) swapPages() string {
	a, p := f.page()
	b, q := f.page()
	pages := f.pages()
	pages[a].Data, pages[b].Data = pages[b].Data, pages[a].Data
	pages[a], pages[b] = sealedAnew(pages[a]), sealedAnew(pages[b])
	return fmt.Sprintf("the pages about %s %d and %s %d have changed places", p.Stream, p.First, q.Stream, q.First)
}

// pageOfAnother relabels a page as one about another stream.
func (f *forger) pageOfAnother() string {
	at, p := f.page()
	_, q := f.page()
	m := f.pages()[at]
	m.Subject = subject.Notary(q.Stream)
	f.put(f.pages(), at, m)
	return fmt.Sprintf("the page about %s %d is filed under %s", p.Stream, p.First, q.Stream)
}

var listSubject = subject.Notary(subject.NotaryStream)

// leaveOutStream removes a stream together with all pages about it, and maybe all lists.
func (f *forger) leaveOutStream() string {
	in, _ := f.any()
	name, lists := in[0].Stream, f.IntN(2) == 0
	f.streams = slices.DeleteFunc(f.streams, func(s archive.Stream) bool { return s.Name == name })
	f.about.Streams = slices.DeleteFunc(f.about.Streams, func(s string) bool { return s == name })
	delete(f.messages, name)
	f.messages[subject.NotaryStream] = slices.DeleteFunc(f.pages(), func(m events.Message) bool {
		return m.Subject == subject.Notary(name) || lists && m.Subject == listSubject
	})
	return fmt.Sprintf("%s is removed with its pages (all lists, too: %v)", name, lists)
}

// leaveOutEnd removes the end of a stream together with the pages about it, which a list
// mentions.
func (f *forger) leaveOutEnd() string {
	lists := f.lists()
	last := f.list(lists[len(lists)-1])
	l := last.Streams[f.IntN(len(last.Streams))]
	from := uint64(0)
	f.messages[subject.NotaryStream] = slices.DeleteFunc(f.pages(), func(m events.Message) bool {
		first, end, _ := events.CoveredBy(m)
		if m.Subject != subject.Notary(l.Stream) || end < l.Last {
			return false
		}
		if from == 0 || first < from {
			from = first
		}
		return true
	})
	f.messages[l.Stream] = slices.DeleteFunc(f.messages[l.Stream], func(m events.Message) bool { return m.Sequence >= from })
	f.state(l.Stream).Last = from - 1
	return fmt.Sprintf("%s and its pages are removed from %d on", l.Stream, from)
}

// lists are the positions of the lists in the notary's stream.
func (f *forger) lists() (at []int) {
	for i, m := range f.pages() {
		if m.Subject == listSubject {
			at = append(at, i)
		}
	}
	return at
}

func (f *forger) list(at int) *notary.List {
	_, verifier := key(f, 1)
	l, err := notary.OpenList(f.pages()[at].Data, note.VerifierList(verifier))
	if err != nil {
		f.Fatal(err)
	}
	return l
}

func (f *forger) changeList() string {
	at := f.lists()
	m := f.pages()[at[f.IntN(len(at))]]
	was := m.Data
	m.Data = f.otherByte(m.Data, false)
	i := slices.IndexFunc(f.pages(), func(o events.Message) bool { return o.Sequence == m.Sequence })
	f.put(f.pages(), i, m)
	return fmt.Sprintf("the list %d is another (%d bytes)", m.Sequence, len(was))
}

// removeList removes a list between two others.
func (f *forger) removeList() string {
	at := f.lists()
	if len(at) < 3 {
		return ""
	}
	i := at[1+f.IntN(len(at)-2)]
	m := f.pages()[i]
	f.messages[subject.NotaryStream] = slices.Delete(f.pages(), i, i+1)
	return fmt.Sprintf("the list %d is removed", m.Sequence)
}
