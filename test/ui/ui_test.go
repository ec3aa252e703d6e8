package ui

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

//go:embed look.js
var lookFor string

const (
	webURL = "?ns=shop&kind=deployments.apps&name=web"
	podURL = "?ns=shop&kind=pods&name=web-1-2"
)

// views are all views, and the words that must be visible before a check.
var views = []struct{ name, query, selector, words string }{
	{"namespace", "?ns=shop", ".row .name", "web-1-2"},
	{"all", "", ".row .name", "web"},
	{"past", webURL, ".past-item", "kubectl-scale"},
	{"why", podURL + "&tab=why&field=spec.containers", ".cause", "it began here"},
	{"compare", webURL + "&tab=compare", ".diff", "spec.replicas"},
	{"yaml", webURL + "&tab=yaml", ".yaml", "replicas: 2"},
	{"standing", webURL + "&tab=standing", ".facts", "as many as are wanted"},
	{"gap", "?ns=shop&kind=pods&name=web-1-1", ".past-item", "Changes may be missing here"},
	{"health", "?view=health", "main h2", "Who is behind"},
	{"absent", "?ns=shop&kind=pods&name=unknown", ".trouble", "Not on record"},
	{"before", "?ns=shop&at=2001-01-01T00:00:00Z", ".trouble", "before the record begins"},
}

func TestEveryViewIsReadable(t *testing.T) {
	p := here(t)
	for _, v := range views {
		for _, theme := range []string{"light", "dark"} {
			t.Run(v.name+"/"+theme, func(t *testing.T) {
				l := visit(t, p, 1440, 900, theme, v.query, "404")
				l.says(v.selector, v.words)
				for _, width := range []int{1440, 360, 3840} {
					l.must(l.Resize(width, 900))
					l.until(fmt.Sprintf("innerWidth === %d", width))
					if wrong := l.wrong(); wrong != "" {
						l.Errorf("%d pixels wide:\n%s", width, wrong)
					}
				}
			})
		}
	}
}

// wrong returns the faults of a view after all its responses have arrived: before that the view may be half
// drawn.
func (l *look) wrong() string {
	l.Helper()
	l.until(`!document.querySelector("[aria-busy]")`)
	return value[string](l, lookFor)
}

func TestTheThemeIsTheMachinesUntilAnotherIsChosen(t *testing.T) {
	l := visit(t, here(t), 1000, 700, "dark", "?ns=shop")
	dark := `getComputedStyle(document.documentElement).backgroundColor`
	first := value[string](l, dark)
	l.must(l.Theme("light"))
	l.until(dark + ` !== "` + first + `"`)
	l.keys("tt") // light, dark
	l.until(dark + ` === "` + first + `"`)
	l.must(l.Go(l.at0("?ns=shop")))
	l.until(`document.querySelector("main h1")`) // a page listens to keys when it has its heading
	l.until(dark + ` === "` + first + `"`)
	l.keys("t") // the machine's theme again
	l.until(dark + ` !== "` + first + `"`)
	if value[bool](l, `localStorage.getItem("theme") !== null`) {
		l.Error("it is still said which one was chosen")
	}
}

func (l *look) at0(query string) string {
	l.Helper()
	return value[string](l, "location.origin") + "/" + query
}

func TestEverythingIsDoneWithTheKeyboard(t *testing.T) {
	l := visit(t, here(t), 1280, 800, "light", "")
	l.says(".row .name", "web")
	l.keys("/")
	l.until(`document.activeElement.getAttribute("role") === "combobox"`)
	l.keys("deploy/w")
	l.says(".hits li", "web")
	l.keys(kb.ArrowDown + kb.Enter)
	l.says("h1", "web")
	l.says(".past-item", "kubectl-scale")
	if at := l.at(); at.Get("kind") != "deployments.apps" || at.Get("ns") != "shop" {
		l.Errorf("the search leads to %v", at)
	}
	for key, words := range map[string]string{"2": "Began with", "3": "spec.replicas", "4": "replicas: 2", "5": "as many as are wanted", "1": "kubectl-scale"} {
		if key == "2" {
			words = "Nothing on record lies behind"
		}
		l.keys(key)
		l.says(".tabpanel", words)
	}
	l.keys("u")
	l.says("h1", "shop")
	l.keys("?")
	l.until(`document.querySelector("dialog").open`)
	l.keys(kb.Escape)
	l.until(`!document.querySelector("dialog").open`)
	l.keys("u")
	l.says("h1", "All namespaces")
	value[any](l, `history.back()`)
	l.says("h1", "shop")
}

// TestEverythingIsReachedByTab tabs once through the page.
func TestEverythingIsReachedByTab(t *testing.T) {
	l := visit(t, here(t), 1280, 800, "light", webURL)
	l.says(".past-item", "kubectl-scale")
	l.settled()
	want := value[int](l, `[...document.querySelectorAll("a[href], button, input, select, [tabindex]")].filter((e) => e.tabIndex >= 0 && !e.disabled && e.checkVisibility() && !e.closest("dialog")).map((e) => { e.dataset.want = ""; return e; }).length`)
	if want < 15 {
		t.Fatalf("only %d things can be reached", want)
	}
	for range want + 5 {
		l.keys(kb.Tab)
		value[any](l, `delete document.activeElement.dataset.want, null`)
	}
	if left := value[string](l, `[...document.querySelectorAll("[data-want]")].map((e) => e.outerHTML.slice(0, 90)).join("\n")`); left != "" {
		l.Errorf("Tab does not reach\n%s", left)
	}
}

func TestListsAreMovedThroughByArrows(t *testing.T) {
	l := visit(t, here(t), 1280, 800, "light", "?ns=shop&show=pods")
	chosen := `document.getElementById(document.activeElement.getAttribute("aria-activedescendant"))?.innerText.includes("%s")`
	// If the focus is in the list before its first items arrive, it stays there. A slow response may take the
	// list off the page, and the focus with it.
	l.until(`(document.querySelector("[aria-label=Objects][role=listbox]")?.focus(), ` + fmt.Sprintf(chosen, "web-1-1") + `)`)
	l.keys(kb.ArrowDown)
	l.until(fmt.Sprintf(chosen, "web-1-2"))
	l.keys(kb.Home)
	l.until(fmt.Sprintf(chosen, "web-1-1"))
	l.keys(kb.End + kb.Enter)
	l.says("h1", "web-1-2")
}

func TestTheSliderShowsANamespaceAsItWas(t *testing.T) {
	l := visit(t, here(t), 1280, 800, "dark", "?ns=shop")
	l.says(".panel-head", "objects")
	l.says(".row .name", "web-1-2")
	l.until(`(document.querySelector("input[type=range]").focus(), document.activeElement.type === "range")`)
	l.keys(kb.Home)
	l.until(`new URLSearchParams(location.search).get("at")`)
	l.says(".moment", "As it was at")
	if said := value[string](l, `document.querySelector("input[type=range]").getAttribute("aria-valuetext")`); !strings.Contains(said, "ago") && !strings.Contains(said, "just now") {
		l.Errorf("the slider says %q", said)
	}
	l.until(`![...document.querySelectorAll(".row .name")].some((e) => e.innerText === "web-1-2")`)
	// Forwards, change by change, until the second Pod exists.
	value[any](l, `document.activeElement.blur()`)
	for range 60 {
		before := l.at().Get("at")
		l.keys("]")
		l.until(fmt.Sprintf(`new URLSearchParams(location.search).get("at") !== %q`, before))
		l.until(`!document.querySelector("[aria-busy]")`)
		if value[bool](l, `[...document.querySelectorAll("[aria-label=Objects][role=listbox] .name")].some((e) => e.innerText === "web-1-2")`) {
			break
		}
	}
	at := l.at().Get("at")
	if at == "" {
		l.Fatal("the second Pod is there only now")
	}
	l.says(".command", "--at="+at)
	// Every user who follows the link sees the same.
	l.must(l.Go(l.at0("?ns=shop&at=" + at)))
	l.says("[aria-label=Objects] .row .name", "web-1-2")
	l.keys("n")
	l.until(`!new URLSearchParams(location.search).get("at")`)
	l.says(".moment", "now")
}

func TestWhatHappensIsSeen(t *testing.T) {
	p := here(t)
	l := visit(t, p, 1280, 800, "light", "?ns=shop&show=pods")
	l.says("#pulse", "Live")
	l.says(".row .name", "web-1-2")
	l.must(p.AddPod(t.Context()))
	l.says("[aria-label=Objects] .row", "web-1-3 pods Running")
	l.says("[aria-label='What happened, newest first'] .row", "pods/web-1-3")
	object := visit(t, p, 1280, 800, "light", webURL)
	object.says(".past-item", "kubectl-scale")
	object.must(p.Scale(t.Context(), "kubectl-again", 3))
	object.says(".past-item", "kubectl-again")
}

func TestWhyIsAGraph(t *testing.T) {
	l := visit(t, here(t), 1440, 900, "dark", podURL+"&tab=why&field=spec.containers")
	l.says(".cause", "too few pods", "as many as are wanted", "kubectl-scale", "it began here")
	l.says(".began", "Began with deployments/web changed by kubectl-scale")
	l.says(".command", "millrace why pods/web-1-2 -n shop --field=spec.containers")
	l.settled() // the page requests the graph again once it has the object's history
	if edges, causes := value[int](l, `document.querySelectorAll(".edges .head").length`), value[int](l, `document.querySelectorAll(".cause").length`); causes < 3 || edges != causes-1 {
		l.Errorf("%d causes are joined by %d lines", causes, edges)
	}
	// Time runs to the right, and each cause is to the left of its effects.
	if !value[bool](l, `[...document.querySelectorAll("[role=group] > li > .cause")].every((c) => c.getBoundingClientRect().right < c.closest("ul").closest("li").firstElementChild.getBoundingClientRect().left)`) {
		l.Error("a cause does not stand before what it led to")
	}
	value[any](l, `document.querySelector(".cause").focus()`)
	l.keys(kb.ArrowLeft + kb.ArrowLeft)
	l.until(`document.activeElement.innerText.includes("kubectl-scale")`)
	l.keys(kb.Enter)
	l.says("h1", "web")
	if at := l.at(); at.Get("kind") != "deployments.apps" || at.Get("at") == "" {
		l.Errorf("it leads to %v", at)
	}
}

func TestVersionsAreCompared(t *testing.T) {
	l := visit(t, here(t), 1280, 800, "light", webURL)
	l.says(".past-item", "kubectl-scale")
	value[any](l, `[...document.querySelectorAll(".past-item")].find((e) => e.innerText.includes("kubectl-scale")).querySelector("a[href*=compare]").click()`)
	l.says(".diff", "spec.replicas 1 → 2")
	from, to := l.at().Get("from"), l.at().Get("to")
	l.says(".command", fmt.Sprintf("millrace diff deployments.apps/web -n shop --from=%s --to=%s", from, to))
	value[any](l, `[...document.querySelectorAll(".tools button")].find((e) => e.innerText === "Swap").click()`)
	l.says(".diff", "spec.replicas 2 → 1")
	if l.at().Get("from") != to {
		l.Errorf("the address is %v", l.at())
	}
}
