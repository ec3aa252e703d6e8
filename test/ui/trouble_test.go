package ui

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/chromedp/chromedp/kb"

	"github.com/millrace/millrace/pkg/events/kinds"
)

func TestAMomentBeforeTheRecordLeadsToItsBegin(t *testing.T) {
	l := visit(t, here(t), 1280, 800, "light", webURL+"&tab=yaml&at=2001-01-01T00:00:00Z", "404")
	l.says(".trouble", "That is before the record begins", "the record of deployments.apps begins")
	value[any](l, `[...document.querySelectorAll(".trouble button")][0].click()`)
	l.until(`!new URLSearchParams(location.search).get("at").startsWith("2001")`)
}

func TestTheBusGoesAndComesBack(t *testing.T) {
	here(t) // builds the program and starts the browser
	p, err := open(t.Context(), filepath.Join(t.TempDir(), "bus"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	l := visit(t, p, 1280, 800, "light", "?ns=shop", "503", "504", "ERR_")
	l.says(".row .name", "web-1-2")
	if err := p.bus.Stop(); err != nil {
		t.Fatal(err)
	}
	l.says("#pulse", "Not live")
	// The page shows an object without a reload.
	value[any](l, fmt.Sprintf(`history.pushState(null, "", "/%s"), dispatchEvent(new PopStateEvent("popstate"))`, webURL))
	l.says(".trouble", "The bus does not answer", "It is tried again")
	if err := p.startBus(); err != nil {
		t.Fatal(err)
	}
	l.says(".past-item", "kubectl-scale")
	l.says("#pulse", "Live")
	// The program itself ends.
	if err := p.page.Stop(); err != nil {
		t.Fatal(err)
	}
	l.keys("4")
	l.says(".trouble", "has it ended?")
}

// hostile are names and values that would be harmful if the page treated them as more than text.
var hostile = []string{
	`<img src=x onerror=hacked()>`, `"><script>hacked()</script>`, `';hacked();//`, `$(touch hacked)`, "`hacked`", "a\nrm -rf hacked", "\u202eevil", `javascript:hacked()`, `${hacked()}`, `\u003cimg src=x onerror=hacked()\u003e`,
}

func TestNamesAreTextAndNothingElse(t *testing.T) {
	p := here(t)
	annotations := map[string]string{}
	for i, text := range hostile {
		annotations[fmt.Sprintf("note-%d", i)] = text
	}
	for i, name := range hostile {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
		if err := p.Is(t.Context(), kinds.ClusterRoles.Kind, role, hostile[(i+1)%len(hostile)]); err != nil {
			t.Fatal(err)
		}
		role.Annotations = map[string]string{"note-0": "changed " + name}
		if err := p.Is(t.Context(), kinds.ClusterRoles.Kind, role, hostile[i]); err != nil {
			t.Fatal(err)
		}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "hostile", Name: "pod", Annotations: annotations}}
	if err := p.Is(t.Context(), kinds.Pods.Kind, pod, hostile[0]); err != nil {
		t.Fatal(err)
	}
	l := visit(t, p, 1280, 800, "light", "?show=clusterroles.rbac.authorization.k8s.io", "404")
	value[any](l, `window.hacked = () => { window.wasHacked = true; }, null`)
	l.says("[aria-label=Objects] .row .name", hostile[0], hostile[1], hostile[3])
	l.says("[aria-label='What happened, newest first'] .row", hostile[0])
	for i, name := range hostile {
		for _, tab := range []string{"past", "why", "compare", "yaml"} {
			value[any](l, fmt.Sprintf(`history.pushState(null, "", "/?" + new URLSearchParams({kind: "clusterroles.rbac.authorization.k8s.io", name: %q, tab: %q})), dispatchEvent(new PopStateEvent("popstate"))`, name, tab))
			l.until(fmt.Sprintf(`document.querySelector("h1").textContent === %q && document.querySelector(".tabs [aria-selected=true]")?.dataset.tab === %q`, name, tab))
			l.until(map[string]string{"past": `document.querySelector(".past-item")`, "why": `document.querySelector(".cause")`, "compare": `document.querySelector(".diff")`, "yaml": `document.querySelector(".yaml")`}[tab])
		}
		if i == 0 {
			l.says(".yaml", "onerror=hacked()")
		}
	}
	if value[bool](l, `!!window.wasHacked || !!document.querySelector("main img, main script, main iframe")`) {
		t.Error("what the record says has become a part of the page")
	}
}

func TestCommandsAreQuoted(t *testing.T) {
	l := visit(t, here(t), 1280, 800, "light", "?ns=shop")
	for word, want := range map[string]string{
		"web": "web", "deployments.apps/web": "deployments.apps/web", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$(touch x)": "'$(touch x)'", "`x`": "'`x`'",
		"a;b": "'a;b'", "a\nb": `$'a\x0ab'`, "\u202ea'": `$'\xe2\x80\xaea\x27'`, "--help": "--help", "ä": "'ä'", "a\x1b[2Jb": `$'a\x1b[2Jb'`,
	} {
		if got := value[string](l, fmt.Sprintf(`import("/command.js").then((m) => m.quote(%q))`, word)); got != want {
			t.Errorf("%q is written %s, want %s", word, got, want)
		}
	}
}

func TestTheBrowserRefusesMarkup(t *testing.T) {
	l := visit(t, here(t), 1280, 800, "light", "?ns=shop", "TrustedHTML", "Trusted Type", "Content Security Policy")
	if value[bool](l, `(() => { try { document.body.innerHTML = "<b>x</b>"; return true; } catch { return false; } })()`) {
		t.Error("a text can become markup")
	}
}

// crowd is a number of Pods that must not slow the page down.
const crowd = 10_000

func TestTenThousandPodsStayFluid(t *testing.T) {
	here(t) // builds the program and starts the browser
	p, err := open(t.Context(), filepath.Join(t.TempDir(), "bus"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	if err := p.Crowd(t.Context(), crowd); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	l := visit(t, p, 1280, 800, "dark", "?ns=crowd&show=pods")
	l.says(".panel-head", "10,000 objects")
	l.says("[aria-label=Objects] .row .name", "pod-00000")
	t.Logf("%d Pods are listed after %v", crowd, time.Since(begun).Round(time.Millisecond))
	// The page stays fluid because few rows are on it in any frame.
	frames := value[[][2]float64](l, `(async () => {
		const list = document.querySelector("[aria-label=Objects][role=listbox]"), frames = [];
		for (let i = 0; i < 60; i++) {
			const begun = performance.now();
			list.scrollTop = (list.scrollHeight * i) / 60;
			await new Promise(requestAnimationFrame);
			frames.push([performance.now() - begun, document.querySelectorAll(".row").length]);
		}
		return frames.sort(([a], [b]) => a - b);
	})()`)
	t.Logf("a frame while scrolling takes %.1f ms in the middle, %.1f ms at the worst", frames[len(frames)/2][0], frames[len(frames)-1][0])
	if median := frames[len(frames)/2][0]; median > 200 {
		t.Errorf("scrolling takes %.0f ms a frame", median)
	}
	for _, f := range frames {
		if rows := f[1]; rows == 0 || rows > 80 {
			t.Fatalf("%v rows are on the page at once", rows)
		}
	}
	value[any](l, `document.querySelector("[aria-label=Objects][role=listbox]").focus()`)
	l.keys(kb.End)
	l.says("[aria-label=Objects] .row", "pod-09999")
	begun = time.Now()
	value[any](l, `document.querySelector("[aria-label='Only objects with this in their name']").focus()`)
	l.keys("0777")
	l.says(".panel-head", "11 objects") // 00777, and 07770 to 07779
	t.Logf("a name is found among them after %v", time.Since(begun).Round(time.Millisecond))
}
