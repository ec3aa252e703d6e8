package archive

import (
	"bytes"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/millrace/millrace/pkg/events/subject"
)

// subjectList is the list of a stream's subjects in its encoded form, sorted by subject, with
// the offset of each line: it takes less memory than a map.
type subjectList struct {
	text  []byte
	lines []uint32
}

// postings is the subject list of a stream.
func (f *File) postings(s *stream) (*subjectList, error) {
	s.once.Do(func() {
		text, err := f.frame(s.Subjects, maxList)
		if err == nil {
			s.subjects, err = decodeSubjects(text, s.streamIndex)
		}
		if err != nil {
			s.err = f.damaged(s, "the list of the subjects", err)
		}
	})
	return &s.subjects, s.err
}

// decodeSubjects checks a list, so that later reads cannot fail.
func decodeSubjects(text []byte, of streamIndex) (list subjectList, err error) {
	head, rest, _ := bytes.Cut(text, []byte{'\n'})
	if string(head) != wordSubjects+" "+of.Name || len(rest) > 0 && rest[len(rest)-1] != '\n' {
		return list, errText
	}
	list.text = rest
	var before string
	for at := 0; at < len(rest); {
		end := at + bytes.IndexByte(rest[at:], '\n')
		name, err := checkLine(string(rest[at:end]), of.Blocks)
		if err != nil {
			return subjectList{}, err
		}
		if len(list.lines) > 0 && name <= before {
			return subjectList{}, fmt.Errorf("%w: %q comes behind %q", errText, name, before)
		}
		list.lines, before, at = append(list.lines, uint32(at)), name, end+1
	}
	if uint64(len(list.lines)) > of.State.Messages {
		return subjectList{}, fmt.Errorf("%w: there are %d subjects of %d messages", errText, len(list.lines), of.State.Messages)
	}
	return list, nil
}

// checkLine checks a line: its blocks are in order, and the last one contains the last message.
func checkLine(line string, blocks []block) (name string, err error) {
	words := strings.Split(line, " ")
	if len(words) < 3 || words[len(words)-1] == "" {
		return "", errText
	}
	last, err := strconv.ParseUint(words[0], 10, 64)
	if err != nil {
		return "", errText
	}
	at := 0
	for i, word := range words[1 : len(words)-1] {
		step, err := strconv.Atoi(word)
		if err != nil || step < 0 || step == 0 && i > 0 || step >= len(blocks)-at {
			return "", errText
		}
		at += step
	}
	if last == 0 || last < blocks[at].First || last > blocks[at].Last {
		return "", errText
	}
	return words[len(words)-1], nil
}

// len is the number of subjects.
func (l *subjectList) len() int { return len(l.lines) }

// line decodes a line: a subject, its last message, and the blocks that contain it.
func (l *subjectList) line(n int) (name string, last uint64, blocks []int) {
	line := l.text[l.lines[n]:]
	line = line[:bytes.IndexByte(line, '\n')]
	words := strings.Split(string(line), " ")
	last, _ = strconv.ParseUint(words[0], 10, 64) // checked, as are the numbers below
	blocks = make([]int, len(words)-2)
	at := 0
	for i, word := range words[1 : len(words)-1] {
		step, _ := strconv.Atoi(word)
		at += step
		blocks[i] = at
	}
	return words[len(words)-1], last, blocks
}

// name is the subject of a line.
func (l *subjectList) name(n int) []byte {
	line := l.text[l.lines[n]:]
	line = line[:bytes.IndexByte(line, '\n')]
	return line[bytes.LastIndexByte(line, ' ')+1:]
}

// find gives the last message of a subject, 0 when there is none, and its blocks.
func (l *subjectList) find(name string) (last uint64, blocks []int) {
	if n, there := l.search(name); there {
		_, last, blocks = l.line(n)
	}
	return last, blocks
}

// last is the last message of a subject; 0 when there is none.
func (l *subjectList) last(name string) uint64 {
	n, there := l.search(name)
	if !there {
		return 0
	}
	line := l.text[l.lines[n]:]
	last, _ := strconv.ParseUint(string(line[:bytes.IndexByte(line, ' ')]), 10, 64) // checked
	return last
}

func (l *subjectList) search(name string) (n int, there bool) {
	n = sort.Search(l.len(), func(n int) bool { return string(l.name(n)) >= name })
	return n, n < l.len() && string(l.name(n)) == name
}

// each calls handle for the subjects that match a filter; "" matches all.
func (l *subjectList) each(filter string, handle func(last uint64, blocks []int)) {
	if filter != "" && !strings.ContainsAny(filter, "*>") {
		if last, blocks := l.find(filter); last != 0 {
			handle(last, blocks)
		}
		return
	}
	for n := range l.len() {
		if filter == "" || subject.Matches(filter, string(l.name(n))) {
			_, last, blocks := l.line(n)
			handle(last, blocks)
		}
	}
}
