package reconciletest

import "strings"

// difference shows two texts line by line, with "- " before lines that only the
// first has and "+ " before lines that only the second has; "" if they are
// equal.
func difference(first, second string) string {
	if first == second {
		return ""
	}
	a, b := lines(first), lines(second)
	common := shared(a, b)
	var page strings.Builder
	write := func(mark, line string) { page.WriteString(mark + line + "\n") }
	for len(a) > 0 || len(b) > 0 {
		i, j := len(common)-len(a)-1, len(common[0])-len(b)-1
		switch {
		case len(a) > 0 && len(b) > 0 && a[0] == b[0]:
			write("  ", a[0])
			a, b = a[1:], b[1:]
		case len(b) == 0 || len(a) > 0 && common[i+1][j] >= common[i][j+1]:
			write("- ", a[0])
			a = a[1:]
		default:
			write("+ ", b[0])
			b = b[1:]
		}
	}
	return page.String()
}

// shared counts, for every suffix of a and of b, the most lines that they can
// have in common, in order.
func shared(a, b []string) [][]int {
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	return common
}

func lines(text string) []string {
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}
