// The first largest element of each row; a NaN is larger than any number.
extern "C" void argmax_rows(const float* x, long* y, long rows, long n) {
    for (long r = 0; r < rows; ++r) {
        const float* row = x + r * n;
        long best = 0;
        for (long i = 1; i < n && row[best] == row[best]; ++i) {
            if (row[i] > row[best] || row[i] != row[i]) best = i;
        }
        y[r] = best;
    }
}
