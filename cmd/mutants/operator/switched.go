package operator

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Environment variables that the test binary of a switched package reads.
const (
	// EnvOn has the number of the mutant that is switched on.
	EnvOn = "MILLRACE_MUTANT_ON"
	// EnvSeen names a file with one byte for each mutant: the byte becomes 1 when the place of its mutant is
	// reached.
	EnvSeen = "MILLRACE_MUTANTS_SEEN"
)

const switches = `package %s

import (
	"os"
	"strconv"
	"syscall"
)

var mutantOn, mutantSeen = mutantSwitches()

func mutantIs(id int) bool {
	if mutantSeen != nil {
		mutantSeen[id] = 1
	}
	return id == mutantOn
}

func mutantSwitches() (on int, seen []byte) {
	on, err := strconv.Atoi(os.Getenv(%q))
	if err != nil {
		on = -1
	}
	if name := os.Getenv(%q); name != "" {
		file, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			panic(err)
		}
		defer file.Close()
		if seen, err = syscall.Mmap(int(file.Fd()), 0, %d, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED); err != nil {
			panic(err)
		}
	}
	return on, seen
}
`

// Switched returns the files of a package with every mutant behind its switch, keyed by the absolute name of
// the file that each replaces or adds.
func (p *Package) Switched() map[string][]byte {
	texts := map[string][]byte{}
	if len(p.sources) == 0 {
		return texts
	}
	for i, s := range p.sources {
		texts[p.files[i]] = p.switched(i, s)
	}
	first := p.sources[0].pkg
	texts[filepath.Join(filepath.Dir(p.files[0]), "mutant_switches.go")] = fmt.Appendf(nil, switches, first.Name, EnvOn, EnvSeen, len(p.Mutants))
	return texts
}

// Alone is the broken file of a mutant that cannot be switched.
func (p *Package) Alone(m Mutant) (file string, text []byte) {
	for i, f := range p.files {
		if strings.HasSuffix(filepath.ToSlash(f), "/"+m.File) {
			old := p.sources[i].text
			return f, slices.Concat(old[:m.change.from], []byte(m.change.after), old[m.change.to:])
		}
	}
	return "", nil
}

// bracket is text before and after a passage.
type bracket struct {
	from, to    int
	open, close string
}

// switched is the text of a file with its mutants behind switches. The original text is written once; each
// replacement is a copy of unbroken text, because only one mutant is on at a time.
func (p *Package) switched(i int, s *source) []byte {
	var all []bracket
	tags := map[any]bool{}
	for _, m := range p.Mutants {
		c := m.change
		if c.form == alone || !strings.HasSuffix(filepath.ToSlash(p.files[i]), "/"+m.File) {
			continue
		}
		all = append(all, c.bracket(m.id))
		if c.tag == nil {
			continue
		}
		all = append(all, bracket{c.from, c.to, "mutantTag == (", ")"})
		if !tags[c.tag] {
			tags[c.tag] = true
			all = append(all, bracket{s.offset(c.tag.Tag.Pos()), s.offset(c.tag.Tag.End()), "mutantTag := ", "; "})
		}
	}
	return enclose(s.text, all)
}

// bracket is the change behind its switch.
func (c change) bracket(id int) bracket {
	b := bracket{from: c.from, to: c.to}
	switch c.form {
	case condition:
		b.open = fmt.Sprintf("(mutantIs(%d) && (%s) || !mutantIs(%d) && (", id, c.after, id)
		b.close = "))"
	case value:
		b.open = fmt.Sprintf("func() %s { if mutantIs(%d) { return %s }; return ", c.kind, id, c.after)
		b.close = " }()"
	case statement:
		b.open = fmt.Sprintf("if mutantIs(%d) { %s } else { ", id, c.after)
		b.close = " }"
		if c.after == "" {
			b.open = fmt.Sprintf("if !mutantIs(%d) { ", id)
		}
	case ending:
		b.open = fmt.Sprintf("if mutantIs(%d) { %s }; ", id, c.after)
	case alone:
	}
	return b
}

// enclose writes brackets into a text. Brackets are nested or apart; of two around the same passage the first
// is the outer one.
func enclose(text []byte, all []bracket) []byte {
	slices.SortStableFunc(all, func(a, b bracket) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to))
	})
	var out []byte
	var open []bracket
	at := 0
	closeUpTo := func(offset int) {
		for len(open) > 0 && open[len(open)-1].to <= offset {
			last := open[len(open)-1]
			open = open[:len(open)-1]
			out = append(append(out, text[at:last.to]...), last.close...)
			at = last.to
		}
	}
	for _, b := range all {
		closeUpTo(b.from)
		out = append(append(out, text[at:b.from]...), b.open...)
		at = b.from
		open = append(open, b)
	}
	closeUpTo(len(text))
	return append(out, text[at:]...)
}
