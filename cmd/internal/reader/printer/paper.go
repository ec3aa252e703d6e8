package printer

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Colour is the style of a piece of text on a terminal.
type Colour string

// The colours, as ECMA-48 has them.
const (
	Plain  Colour = ""
	Bold   Colour = "1"
	Dim    Colour = "2"
	Red    Colour = "31"
	Green  Colour = "32"
	Yellow Colour = "33"
	Blue   Colour = "34"
	Cyan   Colour = "36"
)

// Paper is the output of a command, with colours if the terminal shows them.
type Paper struct {
	out     io.Writer
	colours bool
}

// NewPaper makes a Paper with colours "always", "never", or "auto": on a terminal, unless
// NO_COLOR is set.
func NewPaper(out io.Writer, when string) (*Paper, error) {
	p := &Paper{out: out}
	switch when {
	case "always":
		p.colours = true
	case "never":
	case "auto":
		file, ok := out.(*os.File)
		p.colours = ok && term.IsTerminal(int(file.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	default:
		return nil, fmt.Errorf("read --color: %q is not auto, always or never", when)
	}
	return p, nil
}

// Width is the number of columns of a line, from $COLUMNS or the terminal; 0 is
// unbounded, as for a file or a pipe.
func (p *Paper) Width() int {
	if columns, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && columns > 0 {
		return columns
	}
	if file, ok := p.out.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil {
			return width
		}
	}
	return 0
}

// In is text in a colour.
func (p *Paper) In(c Colour, text string) string {
	if !p.colours || c == Plain || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// Line writes a line, formatted by fmt.Sprintf.
func (p *Paper) Line(format string, args ...any) {
	fmt.Fprintf(p.out, format+"\n", args...)
}

// Cell is one field of a table.
type Cell struct {
	Text   string
	Colour Colour
}

// Cells are fields without colours.
func Cells(texts ...string) []Cell {
	out := make([]Cell, len(texts))
	for i, text := range texts {
		out[i].Text = text
	}
	return out
}

// Table writes rows with aligned columns under a head.
func (p *Paper) Table(head []string, rows [][]Cell) {
	top := Cells(head...)
	for i := range top {
		top[i].Colour = Bold
	}
	rows = append([][]Cell{top}, rows...)
	var widths []int
	for _, row := range rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c.Text))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, c := range row {
			line.WriteString(p.In(c.Colour, c.Text))
			if i+1 < len(row) {
				line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.Text)+3))
			}
		}
		p.Line("%s", strings.TrimRight(line.String(), " "))
	}
}
