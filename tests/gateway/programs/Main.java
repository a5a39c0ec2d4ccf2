import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/** A program in Java that knows nothing of first flights: visits a page and its objects, each time by a new connection. */
public class Main {
    public static void main(String[] arguments) throws Exception {
        for (int visit = 0; visit < Integer.parseInt(arguments[0]); visit++) {
            HttpClient client = HttpClient.newHttpClient();
            long began = System.nanoTime();
            double first = 0;
            for (int at = 1; at < arguments.length; at++) {
                HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[at])).build();
                HttpResponse<InputStream> answer = client.send(request, HttpResponse.BodyHandlers.ofInputStream());
                if (at == 1) {
                    first = (System.nanoTime() - began) / 1e6;
                }
                answer.body().readAllBytes();
                if (answer.statusCode() != 200) {
                    throw new Exception(arguments[at] + ": " + answer.statusCode());
                }
            }
            System.out.printf(java.util.Locale.ROOT, "{\"first\": %.3f, \"page\": %.3f}%n", first, (System.nanoTime() - began) / 1e6);
        }
    }
}
