package archive

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events"
)

// hostile are files made by an attacker, and the expected error of each.
var hostile = []struct {
	name, want string
	write      func(t testing.TB) []byte
}{
	{"a block that is a bomb", "it unpacks to more than any that an export writes", func(t testing.TB) []byte {
		f := newForgery(t)
		at := f.frame(make([]byte, 1<<30))
		return f.close(encodeIndex(t, part(1, at, f.frame([]byte("subjects TURN_c\n1 0 turn.c.act.a\n")))))
	}},
	{"a block that is as large as one may be", errText.Error(), func(t testing.TB) []byte {
		f := newForgery(t)
		at := f.frame(append([]byte("stream TURN_c\n"), bytes.Repeat([]byte("message 1 0 0 0 \n\n"), maxBlock/18-1)...))
		return f.close(encodeIndex(t, part(1, at, f.frame([]byte("subjects TURN_c\n1 0 turn.c.act.a\n")))))
	}},
	{"a bomb that does not say how large it is", "more than the 255 bytes", func(t testing.TB) []byte {
		f := newForgery(t)
		at := f.raw(silentBomb(8 << 30))
		return f.close(encodeIndex(t, part(1, at, f.frame([]byte("subjects TURN_c\n1 0 turn.c.act.a\n")))))
	}},
	{"a bomb in pieces", "more than the 1048576 bytes", func(t testing.TB) []byte {
		f := newForgery(t)
		at := f.raw(append(f.pack.EncodeAll(make([]byte, 1<<20), nil), silentBomb(8<<30)...))
		return f.close(encodeIndex(t, part(1, at, f.frame([]byte("subjects TURN_c\n1 0 turn.c.act.a\n")))))
	}},
	{"a list of subjects that is a bomb", "the list of the subjects of TURN_c", func(t testing.TB) []byte {
		f := newForgery(t)
		at := f.frame([]byte("stream TURN_c\nmessage 1 5 0 2 turn.c.act.a\n{}\n"))
		return f.close(encodeIndex(t, part(1, at, f.frame(make([]byte, 1<<30)))))
	}},
	{"a list of subjects of empty lines", "the list of the subjects of TURN_c", func(t testing.TB) []byte {
		f := newForgery(t)
		at := f.frame([]byte("stream TURN_c\nmessage 1 5 0 2 turn.c.act.a\n{}\n"))
		return f.close(encodeIndex(t, part(1, at, f.frame(append([]byte("subjects TURN_c\n"), bytes.Repeat([]byte("\n"), maxList-100)...)))))
	}},
	{"an index that is a bomb", "it unpacks to more than any that an export writes", func(t testing.TB) []byte { return newForgery(t).close(make([]byte, 1<<30)) }},
	{"an index of streams without content", "too many entries", func(t testing.TB) []byte {
		return newForgery(t).close([]byte(`{"streams":[` + strings.Repeat("{},", maxIndex/3-20) + `{}]}`))
	}},
	{"an index of empty words", "too many fields", func(t testing.TB) []byte {
		return newForgery(t).close([]byte(`{"about":{"streams":[` + strings.Repeat(`"",`, maxIndex/3-20) + `""]}}`))
	}},
	{"an index of lists in lists", "too many entries", func(t testing.TB) []byte { return newForgery(t).close(bytes.Repeat([]byte("["), maxIndex)) }},
	{"an end that is cut off behind a bomb", "", func(t testing.TB) []byte {
		f := newForgery(t)
		f.frame(make([]byte, 1<<30))
		return f.Bytes()
	}},
	{"an end that is cut off behind many streams", "", func(t testing.TB) []byte {
		f := newForgery(t)
		f.frame(bytes.Repeat([]byte("stream a\nstream b\n"), 4<<20))
		return f.Bytes()
	}},
	{"a first line without end", ErrNoRecord.Error(), func(t testing.TB) []byte {
		f := &forgery{pack: newForgery(t).pack}
		f.frame(bytes.Repeat([]byte(" "), 1<<30))
		return f.Bytes()
	}},
	{"a negative length", "-1 bytes", bent(func(s *streamIndex) { s.Blocks[0].Length = -1 })},
	{"a length without bound", "4611686018427387904 bytes", bent(func(s *streamIndex) { s.Blocks[0].Length = 1 << 62 })},
	{"a negative offset", "at -1", bent(func(s *streamIndex) { s.Blocks[0].Offset = -1 })},
	{"an offset behind the end", "at 1073741824", bent(func(s *streamIndex) { s.Blocks[1].Offset = 1 << 30 })},
	{"a block that overlaps another", "where", bent(func(s *streamIndex) { s.Blocks[1].extent = s.Blocks[0].extent })},
	{"blocks in the wrong order", "where", bent(func(s *streamIndex) {
		s.Blocks[0].extent, s.Blocks[1].extent = s.Blocks[1].extent, s.Blocks[0].extent
	})},
	{"a list of subjects in a block", "the list of the subjects", bent(func(s *streamIndex) { s.Subjects = s.Blocks[0].extent })},
	{"messages in the wrong order", "block 1 has the messages 1 to 2", bent(func(s *streamIndex) { s.Blocks[1].First = 1 })},
	{"a block without messages", "block 0 has 0 messages", bent(func(s *streamIndex) { s.Blocks[0].Messages = 0 })},
	{"a block with fewer than no messages", "block 0 has -1 messages", bent(func(s *streamIndex) { s.Blocks[0].Messages = -1 })},
	{"a block with messages without bound", "block 0 has 9223372036854775807 messages", bent(func(s *streamIndex) { s.Blocks[0].Messages = 1<<63 - 1 })},
	{"a block older than the one before it", "block 1 is older", bent(func(s *streamIndex) { s.Blocks[1].Latest = 0 })},
	{"a stream with another number of messages", "and says 7", bent(func(s *streamIndex) { s.State.Messages = 7 })},
	{"a stream that ends before its messages", "block 1 has the messages 2 to 2", bent(func(s *streamIndex) { s.State.Last = 1 })},
	{"a stream without a name", `stream 0 is named ""`, bent(func(s *streamIndex) { s.Name = "" })},
	{"a stream of another kind", `is of the kind "pods"`, bent(func(s *streamIndex) { s.Kind = &somePods })},
	{"a block that says less than it has", "where it was full", func(t testing.TB) []byte {
		f := newForgery(t)
		text := []byte("stream TURN_c\n")
		for n := range 20000 {
			text = fmt.Appendf(text, "message %d 5 0 0 a\n\n", n+1)
		}
		at := f.frame(text)
		s := part(maxMessages, at, f.frame([]byte("subjects TURN_c\n1 0 a\n")))
		s.Blocks[0].Last, s.State.Last = 20000, 20000
		return f.close(encodeIndex(t, s))
	}},
	{"a subject in blocks that are not there", "the list of the subjects of TURN_c", subjectLine("1 0 9223372036854775807 2 turn.c.act.a")},
	{"a subject in a block before the first", "the list of the subjects of TURN_c", subjectLine("1 -1 turn.c.act.a")},
	{"a subject in no block", "the list of the subjects of TURN_c", subjectLine("1 turn.c.act.a")},
	{"a subject whose last message is elsewhere", "the list of the subjects of TURN_c", subjectLine("2 0 turn.c.act.a")},
	{"a subject whose last message is of another", "it is not the last one of turn.c.act.a", subjectLine("2 1 turn.c.act.a")},
}

// bent is a valid file with a modified index.
func bent(bend func(s *streamIndex)) func(t testing.TB) []byte {
	return func(t testing.TB) []byte { return forge(t, bend) }
}

// subjectLine is a file with one line in the list of its subjects, of two messages on one
// subject.
func subjectLine(line string) func(t testing.TB) []byte {
	return func(t testing.TB) []byte {
		f := newForgery(t)
		s := part(1, f.frame([]byte("stream TURN_c\nmessage 1 5 0 2 turn.c.act.a\n{}\n")), extent{})
		s.Blocks = append(s.Blocks, block{extent: f.frame([]byte("stream TURN_c\nmessage 2 5 0 2 turn.c.act.b\n{}\n")), First: 2, Last: 2, Messages: 1, Latest: 1 << 62})
		s.State.Last, s.State.Messages = 2, 2
		s.Subjects = f.frame([]byte("subjects TURN_c\n" + line + "\n"))
		return f.close(encodeIndex(t, s)) // the test also calls Last for turn.c.act.b
	}
}

// silentBomb is a frame of zeros that does not state its size, most bytes.
func silentBomb(size int) []byte {
	const most = 128 << 10
	packed := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0x40} // no size, no sum; a window of 256 kB
	for left := size / most; left > 0; left-- {
		head := uint32(most)<<3 | 1<<1 // the following byte, repeated that often
		if left == 1 {
			head |= 1
		}
		packed = append(packed, byte(head), byte(head>>8), byte(head>>16), 0)
	}
	return packed
}

const hostileFile = "MILLRACE_TEST_HOSTILE_FILE"

// TestHostileFiles: a file made by an attacker gives one clear error, and reading it takes less
// than 100 MB of memory.
func TestHostileFiles(t *testing.T) {
	if name := os.Getenv(hostileFile); name != "" {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("peak %d\n", peak(t))
		err = readAll(text)
		fmt.Printf("peak %d\nerror %v\ndamaged %v\n", peak(t), err, errors.Is(err, events.ErrDamaged) || errors.Is(err, ErrNoRecord) || errors.As(err, new(*Cut)))
		return
	}
	for _, tc := range hostile {
		t.Run(tc.name, func(t *testing.T) {
			file := t.TempDir() + "/hostile.millrace"
			if err := os.WriteFile(file, tc.write(t), 0o600); err != nil {
				t.Fatal(err)
			}
			reading := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHostileFiles$")
			reading.Env = append(os.Environ(), hostileFile+"="+file)
			out, err := reading.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %.4000s", err, out)
			}
			_, text, _ := strings.Cut(string(out), "\nerror ")
			text, damaged, _ := strings.Cut(text, "\ndamaged ")
			if !strings.HasPrefix(damaged, "true") || !strings.Contains(text, tc.want) || !strings.Contains(text, "the file") {
				t.Errorf("the file is refused with %q, want %q", text, tc.want)
			}
			if most := peakOf(t, string(out)); most > 100_000 {
				t.Errorf("the file took %d kB of memory, want 100000 at most", most)
			}
		})
	}
}

// peak is the peak memory of this process, in kB.
func peak(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kilobytes, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes
}

func peakOf(t *testing.T, out string) (most int) {
	t.Helper()
	for line := range strings.Lines(out) {
		if text, ok := strings.CutPrefix(line, "peak "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(text))
			if err != nil {
				t.Fatal(err)
			}
			most = max(most, n)
		}
	}
	if most == 0 {
		t.Fatalf("the output has no peak of memory: %s", out)
	}
	return most
}

// TestAnHonestForgeryIsRead: the unmodified form of the files above is valid.
func TestAnHonestForgeryIsRead(t *testing.T) {
	if err := readAll(forge(t, func(*streamIndex) {})); err != nil {
		t.Error(err)
	}
}
